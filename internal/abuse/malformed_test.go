//go:build linux

package abuse

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// randomBytes returns bytes that are the same in every run.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// malformedFrames are the first bytes of connections that follow no protocol, or break
// the rules of HTTP/2, HPACK, gRPC or TLS.
func malformedFrames() map[string][]byte {
	const acquire = "/leased.v1.LeaseService/Acquire"
	headers := callHeaders(acquire)
	frames := map[string][]byte{
		"no bytes":                 nil,
		"part of the preface":      []byte(preface[:10]),
		"preface and text":         []byte(preface + strings.Repeat("nonsense ", 1000)),
		"preface and random bytes": append([]byte(preface), randomBytes(1, 100_000)...),
		"truncated frame":          append([]byte(preface), frame(frameSettings, 0, 0, make([]byte, 60))[:20]...),
		"frame of 16 MiB":          append([]byte(preface), 0xff, 0xff, 0xff, frameData, 0, 0, 0, 0, 1),
		"data without a stream":    append([]byte(preface), frame(frameData, 0, 7, []byte("x"))...),
		"invalid HPACK":            append([]byte(preface), frame(frameHeaders, endHeaders, 1, randomBytes(2, 5000))...),
		"HPACK bomb":               hpackBomb(1_000_000),
		"continuation without end": flood(20_000, 0, func(uint32) []byte { return frame(frameContinuation, 0, 1, nil) }),
		"ping flood":               flood(50_000, 0, func(uint32) []byte { return frame(framePing, 0, 0, make([]byte, 8)) }),
		"settings flood":           flood(50_000, 0, func(uint32) []byte { return frame(frameSettings, 0, 0, nil) }),
		"rapid reset": flood(20_000, 2, func(n uint32) []byte {
			return append(frame(frameHeaders, endHeaders, n, headers), frame(frameReset, 0, n, make([]byte, 4))...)
		}),
		"streams without data": flood(20_000, 2, func(n uint32) []byte {
			return frame(frameHeaders, endHeaders, n, headers)
		}),
		"no gRPC framing":            grpcCall(acquire, []byte("x")),
		"gRPC message of 4 GiB":      grpcCall(acquire, grpcMessage(0, 1<<32-1, []byte("x"))),
		"unknown compression":        grpcCall(acquire, grpcMessage(1, 3, []byte("abc"))),
		"invalid flag":               grpcCall(acquire, grpcMessage(0xfe, 3, []byte("abc"))),
		"invalid protobuf":           grpcCall(acquire, grpcMessage(0, 1000, randomBytes(3, 1000))),
		"gRPC method with a newline": grpcCall("/leased.v1.LeaseService/\r\n", grpcMessage(0, 0, nil)),
		"TLS on a port without it":   append([]byte{0x16, 0x03, 0x01, 0x02, 0x00}, randomBytes(4, 512)...),
		"HTTP/1.1 without end": []byte("POST /v1/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " +
			"99999999999999999999\r\n"),
		"two lengths": []byte("POST /v1/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " +
			"2\r\nTransfer-Encoding: chunked\r\n\r\n{}"),
		"invalid chunks": []byte("POST /v1/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " +
			"application/json\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n"),
		"header line of 4 MiB": append([]byte("POST /v1/acquire HTTP/1.1\r\nX: "), bytes.Repeat([]byte("x"), 4*mib)...),
	}
	for seed := range uint64(20) {
		frames["random bytes "+string('a'+rune(seed))] = randomBytes(100+seed, 1<<seed)
	}
	return frames
}

// send writes bytes and reads until the server closes the connection or has not
// answered for a moment. Errors are expected.
func send(conn net.Conn, bytes []byte) {
	defer conn.Close()
	go func() { _, _ = conn.Write(bytes) }()
	_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = io.Copy(io.Discard, conn)
}

// Malformed frames on the API port harm nobody else, and leave nothing behind.
func TestMalformedFrames(t *testing.T) {
	t.Parallel()
	s := start(t)
	files := s.files()
	before, others := s.memory("VmRSS"), s.bystander()
	frames := malformedFrames()
	for _, bytes := range frames {
		send(s.connect(s.api), bytes)
	}
	served := others.end()
	s.running()
	eventually(t, "the connections are closed", func() bool { return s.files() <= files+2 })
	peak := s.memory("VmHWM")
	t.Logf("%d malformed connections: memory %s before, %s at most; %s", len(frames), size(before), size(peak), served)
	require.Less(t, peak, before+256*mib)
	require.Zero(t, s.count("holders"))
	require.NotContains(t, s.text(), "panic")
}

// Garbage on the Raft port does not end the member. Without TLS the port listens on
// loopback only, and everyone on the machine is trusted with it.
func TestMalformedRaftFrames(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	member := ca.issue(t, certificate{name: "n1", member: "n1"})
	for name, flags := range map[string][]string{"TLS": member.flags(ca), "loopback": nil} {
		t.Run(name, func(t *testing.T) {
			s := launch(t, flags...)
			s.tls = len(flags) > 0
			client := s.httpClient(ca, ca.issue(t, certificate{name: "client"}))
			eventually(t, "the server is ready", func() bool { return s.ready(client) })
			payloads := [][]byte{nil, []byte("GET / HTTP/1.1\r\n\r\n"), {0x16, 0x03, 0x01, 0xff, 0xff}}
			for kind := range byte(6) { // the first byte of a Raft request is its kind
				payloads = append(payloads, []byte{kind}, append([]byte{kind}, randomBytes(uint64(kind), 10_000)...),
					[]byte{kind, 0xdf, 0xff, 0xff, 0xff, 0xff}, []byte{kind, 0x81, 0xa7, 'E', 'n', 't', 'r', 'i', 'e', 's', 0xdd, 0x7f,
						0xff, 0xff, 0xff})
			}
			before := s.memory("VmRSS")
			for _, p := range payloads {
				send(s.connect(s.raft), p)
			}
			s.running()
			require.True(t, s.ready(client))
			t.Logf("%d malformed connections to the Raft port, %s: memory %s before, %s at most", len(payloads), name,
				size(before), size(s.memory("VmHWM")))
			require.Less(t, s.memory("VmHWM"), before+256*mib)
		})
	}
}

// Bytes that are no TLS do not harm a port with TLS.
func TestMalformedTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := launch(t, append(ca.issue(t, certificate{name: "n1", member: "n1"}).flags(ca), "--tls-clients")...)
	s.tls = true
	client := s.httpClient(ca, ca.issue(t, certificate{name: "client"}))
	eventually(t, "the server is ready", func() bool { return s.ready(client) })
	before := s.memory("VmRSS")
	frames := malformedFrames()
	frames["hello of 16 KiB"] = append([]byte{0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc},
		randomBytes(9, 0x3ffc)...)
	for _, bytes := range frames {
		send(s.connect(s.api), bytes)
	}
	s.running()
	require.True(t, s.ready(client))
	t.Logf("%d malformed connections to a port with TLS: memory %s before, %s at most", len(frames), size(before),
		size(s.memory("VmHWM")))
	require.Less(t, s.memory("VmHWM"), before+256*mib)
}

// malformedJSON are bodies of an acquire that the server must refuse.
func malformedJSON() map[string]string {
	return map[string]string{
		"text":                    `nonsense`,
		"truncated":               `{"resource":"a"`,
		"trailing bytes":          `{"resource":"a"}{}`,
		"array":                   `[]`,
		"null":                    `null`,
		"deep nesting":            strings.Repeat(`{"resource":`, 5000),
		"deep array":              `{"resources":` + strings.Repeat(`[`, 30_000),
		"unknown field":           `{"resource":"a","nonsense":1}`,
		"duplicate key":           `{"resource":"a","resource":"b"}`,
		"two names of one field":  `{"resource":"a","sessionId":"","session_id":""}`,
		"huge number":             `{"resource":"a","nonce":` + strings.Repeat("9", 10_000) + `}`,
		"huge exponent":           `{"resource":"a","nonce":1e999999999}`,
		"negative number":         `{"resource":"a","nonce":-1}`,
		"fraction":                `{"resource":"a","nonce":1.5}`,
		"permits above int32":     `{"resource":"a","permits":2147483648}`,
		"negative permits":        `{"resource":"a","permits":-1}`,
		"number as name":          `{"resource":7}`,
		"invalid UTF-8":           "{\"resource\":\"a\xff\"}",
		"lone surrogate":          `{"resource":"\ud800"}`,
		"NUL in a name":           `{"resource":"a\u0000b"}`,
		"newline in a name":       `{"resource":"a\nb"}`,
		"empty name":              `{"resource":""}`,
		"no name":                 `{}`,
		"NUL in a holder":         `{"resource":"a","holder":"\u0000"}`,
		"negative duration":       `{"resource":"a","ttl":"-10s"}`,
		"huge duration":           `{"resource":"a","ttl":"9999999999h"}`,
		"duration without a unit": `{"resource":"a","wait":"10"}`,
		"unknown mode":            `{"resource":"a","mode":"nonsense"}`,
		"invalid session":         `{"resource":"a","sessionId":"zz"}`,
		"shared permit":           `{"resource":"a","shared":true,"permits":2}`,
	}
}

// Malformed JSON is refused as the caller's mistake, with a reason, and grants nothing.
func TestMalformedJSON(t *testing.T) {
	t.Parallel()
	s := start(t)
	before, others := s.memory("VmRSS"), s.bystander()
	bodies := malformedJSON()
	for name, body := range bodies {
		a := s.post("", "/v1/acquire", body)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %.300s", name, a.text)
		require.Contains(t, []string{"invalid", "invalid-resource"}, a.code, name)
		require.Greater(t, len(a.fields["message"].(string)), 20, name)
		require.Less(t, len(a.text), 16<<10, "%s: the answer repeats the request", name)
	}
	served := others.end()
	require.Zero(t, s.count("holders"))
	require.Zero(t, s.count("sessions"), "a refused call leaves no session")
	t.Logf("%d malformed JSON bodies: memory %s before, %s at most; %s", len(bodies), size(before),
		size(s.memory("VmHWM")), served)
	require.Less(t, s.memory("VmHWM"), before+128*mib)
}

// handshake makes a TLS connection and reads, since a server of TLS 1.3 refuses a
// client's certificate only after the client has finished.
func handshake(address string, config *tls.Config) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: testTimeout}, "tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	if _, err := conn.Write([]byte("GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	_, err = io.ReadAll(conn)
	return err
}
