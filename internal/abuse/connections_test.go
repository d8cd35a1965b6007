//go:build linux

package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requestText returns an HTTP request as it is sent.
func requestText(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "+
		"%d\r\n\r\n%s", path, len(body), body)
}

// openIdle opens idle connections of three kinds in turn: without a byte, with HTTP
// keep-alive after one request, and with HTTP/2 after its first frames.
func openIdle(s *server, n int) []net.Conn {
	s.t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = s.connect(s.api)
		var err error
		switch i % 3 {
		case 1:
			_, err = io.WriteString(conns[i], requestText("/v1/health", "{}"))
		case 2:
			_, err = conns[i].Write(append([]byte(preface), frame(frameSettings, 0, 0, nil)...))
		}
		require.NoError(s.t, err)
	}
	for i, conn := range conns {
		switch i % 3 {
		case 1:
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(s.t, err)
			require.Equal(s.t, http.StatusOK, response.StatusCode)
		case 2:
			_, err := io.ReadFull(conn, make([]byte, 9)) // the settings of the server
			require.NoError(s.t, err)
		}
	}
	return conns
}

// Idle connections cost a bounded amount of memory each, do not disturb others, and
// leave nothing behind.
func TestIdleConnections(t *testing.T) {
	s := start(t)
	files, before := s.files(), s.memory("VmRSS")
	others := s.bystander()
	conns := openIdle(s, *scale)
	open, during, served := s.files()-files, s.memory("VmRSS"), others.end()
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "the connections are closed", func() bool { return s.files() <= files+2 })
	t.Logf("%d idle connections, %d open at the end: memory %s before, %s during; %s", len(conns), open, size(before),
		size(during), served)
	require.Less(t, during, before+64*mib+len(conns)*128<<10)
	s.call("/v1/acquire", `{"resource":"a"}`)

	fresh := start(t)
	fresh.call("/v1/acquire", `{"resource":"a"}`)
	require.Less(t, s.goroutines(), fresh.goroutines()+50, "goroutines stay behind")
}

// Waiters whose connections vanish leave no queue, session, file or goroutine behind.
func TestVanishingWaiters(t *testing.T) {
	const (
		locks = 20  // several, since the queue of one is limited
		wave  = 500 // below the connections that a server keeps while it does not know their protocol
	)
	s := start(t)
	held := make([]string, locks)
	for i := range held {
		held[i] = fmt.Sprintf(`{"resource":"lock/%d","token":%.0f}`, i,
			s.call("/v1/acquire", fmt.Sprintf(`{"resource":"lock/%d","ttl":"10m"}`, i))["token"])
	}
	files, sessions, before := s.files(), s.count("sessions"), s.memory("VmRSS")
	others := s.bystander()
	conns := make([]net.Conn, *scale)
	for i := range conns {
		conns[i] = s.connect(s.api)
		_, err := io.WriteString(conns[i],
			requestText("/v1/acquire", fmt.Sprintf(`{"resource":"lock/%d","ttl":"10m","wait":"10m","holder":"%s"}`,
				i%locks, strings.Repeat("x", 100))))
		require.NoError(t, err)
		if n := i + 1; n%wave == 0 || n == len(conns) {
			eventually(t, "all wait", func() bool { return s.count("waiters") == n })
		}
	}
	during := s.memory("VmRSS")
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "nobody waits", func() bool { return s.count("waiters") == 0 })
	served := others.end()
	eventually(t, "their sessions are closed", func() bool { return s.count("sessions") <= sessions })
	eventually(t, "their connections are closed", func() bool { return s.files() <= files+2 })
	for _, lease := range held {
		require.Equal(t, true, s.call("/v1/release", lease)["released"])
	}
	require.Zero(t, s.count("holders"), "a waiter that is gone was granted the lock")
	t.Logf("%d vanishing waiters: memory %s before, %s during, %s after; %s", len(conns), size(before), size(during),
		size(s.memory("VmRSS")), served)
	require.Less(t, during, before+64*mib+len(conns)*256<<10)

	fresh := start(t)
	fresh.call("/v1/acquire", `{"resource":"a"}`)
	require.Less(t, s.goroutines(), fresh.goroutines()+50, "goroutines stay behind")
}

// Clients that all connect at once, as after a failover, are served, although their TLS
// handshakes take the server a while. On a busy machine some may take too long.
func TestBurstOfHandshakes(t *testing.T) {
	ca := newAuthority(t)
	s := launch(t, append(ca.issue(t, certificate{name: "n1", member: "n1"}).flags(ca), "--tls-clients")...)
	s.tls = true
	own := ca.issue(t, certificate{name: "client"})
	client := s.httpClient(ca, own)
	eventually(t, "the server is ready", func() bool { return s.ready(client) })
	clients := min(*scale, 3000)
	failed := make(chan error, clients)
	for range clients {
		go func() { failed <- handshake(s.api, ca.client(own.tls)) }()
	}
	refused := 0
	for range clients {
		if err := <-failed; err != nil {
			refused++
		}
	}
	t.Logf("%d clients at once: %d refused; memory %s at most", clients, refused, size(s.memory("VmHWM")))
	require.Less(t, refused, clients)
	require.True(t, s.ready(client))
}
