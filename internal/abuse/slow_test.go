//go:build linux

package abuse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// sendTimeout is the time that a server allows slow clients in these tests.
const sendTimeout = "5s"

// A session stream that sends operations and never reads the answers does not make the
// server grow: the server stops to read from it, and ends the stream with a reason.
func TestStreamThatNeverReads(t *testing.T) {
	t.Parallel()
	const (
		operations = 1000 // of a message
		messages   = 3000
	)
	s := start(t, "--limit-send-timeout="+sendTimeout, "--limit-streams-per-user=1")
	before, others := s.memory("VmRSS"), s.bystander()
	stream, err := pb.NewLeaseServiceClient(s.dial("")).Session(t.Context())
	require.NoError(t, err)
	id := engine.NewSessionID()
	message := &pb.SessionRequest{}
	for i := range operations { // each is refused with a long reason, since the session is not open
		message.Operations = append(message.Operations, &pb.Operation{Id: uint64(i), Session: id[:],
			Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}})
	}
	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: message.Operations[:1]}))
	_, err = stream.Recv()
	require.NoError(t, err)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; n < messages && stream.Send(message) == nil; n++ {
		}
		sent <- n
	}()
	other := pb.NewLeaseServiceClient(s.dial(""))
	eventually(t, "the stream is ended, and another can be opened", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		next, err := other.Session(ctx)
		require.NoError(t, err)
		// Fails if the service has refused the stream already.
		_ = next.Send(&pb.SessionRequest{Operations: message.Operations[:1]})
		_, err = next.Recv()
		return err == nil
	})
	during, served := s.memory("VmHWM"), others.end()
	for err == nil { // what was sent before the stream ended
		_, err = stream.Recv()
	}
	n := <-sent
	t.Logf("a stream that never reads: ended after %d operations; memory %s before, %s at most; %s; the client is "+
		"told: %v",
		n*operations, size(before), size(during), served, err)
	require.Less(t, during, before+192*mib)
	require.Less(t, n, messages, "the server has taken all operations")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "does not read")
	s.running()
}

// Watches that never read do not make the server grow, and are ended.
func TestWatchersThatNeverRead(t *testing.T) {
	t.Parallel()
	const (
		watchers = 50
		names    = 500
	)
	s := start(t, "--limit-send-timeout="+sendTimeout)
	files, before := s.files(), s.memory("VmRSS")
	conns := make([]net.Conn, watchers)
	for i := range conns {
		dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
			})
		}}
		conn, err := dialer.Dial("tcp", s.api)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = io.WriteString(conn, requestText("/v1/watch", `{"prefix":""}`))
		require.NoError(t, err)
		conns[i] = conn
	}
	others := s.bystander()
	metadata := strings.Repeat("x", 2000) // makes events large
	churned, ended := 0, false
	deadline := time.Now().Add(testTimeout)
	for !ended && time.Now().Before(deadline) {
		session, _ := s.call("/v1/open-session", `{"ttl":"10m"}`)["sessionId"].(string)
		for i := range names {
			s.call("/v1/acquire", fmt.Sprintf(`{"resource":"churn/%d","sessionId":%q,"metadata":{"k":%q}}`, i, session,
				metadata))
		}
		s.call("/v1/close-session", fmt.Sprintf(`{"sessionId":%q}`, session))
		churned += names
		ended = s.files() <= files+10
	}
	served := others.end()
	during := s.memory("VmHWM")
	t.Logf("%d watches that never read, %d locks changed: memory %s before, %s at most; %d of their connections open; %s",
		watchers, churned, size(before), size(during), max(0, s.files()-files), served)
	require.True(t, ended, "the watches are not ended")
	require.Less(t, during, before+256*mib)
}

// A body that does not arrive, and a connection that stays idle, are closed by the
// server.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	s := start(t, "--limit-body-timeout="+sendTimeout, "--limit-send-timeout="+sendTimeout,
		"--limit-idle-timeout="+sendTimeout)
	files := s.files()
	others := s.bystander()
	conns := map[string]net.Conn{}
	for name, text := range map[string]string{
		"half a body": "POST /v1/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " +
			"application/json\r\nContent-Length: 100\r\n\r\n{\"resource\":",
		"half a chunk": "POST /v1/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " +
			"application/json\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{",
		"half a header": "POST /v1/acquire HTTP/1.1\r\nHost: ",
		"half a file":   "POST /v1/inspect-snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nx",
		"no byte":       "",
		"half a frame":  preface + "\x00\x00",
		"idle":          requestText("/v1/health", "{}"),
	} {
		conns[name] = s.connect(s.api)
		_, err := io.WriteString(conns[name], text)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for name, conn := range conns {
		began := time.Now()
		require.NoError(t, conn.SetReadDeadline(deadline))
		answer, err := io.ReadAll(bufio.NewReader(conn))
		require.False(t, isTimeout(err), "%s: the connection is still open", name)
		require.NotContains(t, string(answer), "500 Internal Server Error", name)
		t.Logf("%s: closed, waited %v more, answer %.60q", name, time.Since(began).Round(time.Second),
			strings.SplitN(string(answer), "\r\n", 2)[0])
	}
	t.Log(others.end())
	eventually(t, "the connections are closed", func() bool { return s.files() <= files+2 })
	require.Equal(t, http.StatusOK, s.post("", "/v1/acquire", `{"resource":"a"}`).status)
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
