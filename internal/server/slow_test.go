package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// slowTimeout is how long a server of these tests waits for a slow client.
const slowTimeout = 2 * time.Second

func impatient(l *limits.Limits) {
	l.SendTimeout, l.BodyTimeout, l.IdleTimeout = slowTimeout, slowTimeout, slowTimeout
}

// heapSize returns the bytes in use after a garbage collection.
func heapSize() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A session stream that is not read does not grow the server: operations whose answers
// were not sent keep their slots, and the stream ends. Its session stays open.
func TestSlowSessionStream(t *testing.T) {
	s := startLimited(t, impatient)
	id := engine.NewSessionID()
	require.Empty(t, openStream(t, s.Address(), id).open())
	stream, err := pb.NewLeaseServiceClient(dial(t, s.Address())).Session(testContext(t))
	require.NoError(t, err)
	message := &pb.SessionRequest{}
	for i := range 1000 { // each is refused with a long reason
		message.Operations = append(message.Operations, &pb.Operation{Id: uint64(i), Session: id[:],
			Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}})
	}
	before, peak := heapSize(), uint64(0)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; n < 1000 && stream.Send(message) == nil; n++ {
		}
		sent <- n
	}()
	n := -1
	for n < 0 {
		peak = max(peak, heapSize())
		select {
		case n = <-sent:
		case <-time.After(50 * time.Millisecond):
		}
	}
	grown := float64(int64(peak)-int64(before)) / (1 << 20)
	t.Logf("the stream ended after %d operations; the heap of client and server grew by %.1f MiB", n*1000, grown)
	require.Less(t, n, 1000, "the server takes all operations")
	require.Less(t, grown, 200.0)
	_, code := openStream(t, s.Address(), id).attach()
	require.Empty(t, code, "the session is open")
}

// A client that reads late is told why its stream ended.
func TestSlowStreamIsTold(t *testing.T) {
	t.Parallel()
	// The client has as long again to read.
	s := startLimited(t, func(l *limits.Limits) { l.SendTimeout, l.StreamsPerUser = 10*slowTimeout, 1 })
	conn, err := grpc.NewClient("passthrough:///"+s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<16))
	require.NoError(t, err)
	defer conn.Close()
	prefix := ""
	watch, err := pb.NewLeaseServiceClient(conn).Watch(testContext(t), &pb.WatchRequest{Prefix: &prefix})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	metadata := strings.Repeat("x", 4000)
	for i := range 40 { // more than the window holds
		mustPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"slow/%d","ttl":"10m","metadata":{"k":%q}}`, i,
			metadata))
	}
	eventually(t, "the watch has ended on the server", func() bool {
		again, err := pb.NewPolicyServiceClient(dial(t, s.Address())).WatchTopology(testContext(t),
			&pb.WatchTopologyRequest{})
		require.NoError(t, err)
		_, err = again.Recv()
		return err == nil
	})
	for err = nil; err == nil; {
		_, err = watch.Recv()
	}
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrLimit)
	require.ErrorContains(t, err, "limit-send-timeout")
}

// header is the beginning of an HTTP call: its name, the size of its body, and as much
// of the body as is sent.
const header = "POST /v1/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: " +
	"%d\r\n\r\n%s"

// The server closes HTTP connections whose body does not arrive, and those that are
// idle.
func TestSlowHTTPClients(t *testing.T) {
	t.Parallel()
	s := startLimited(t, impatient)
	for name, text := range map[string]string{
		"half a body":           fmt.Sprintf(header, "acquire", 100, `{"resource":`),
		"half a refused body":   fmt.Sprintf(header, "nothing", 100, `{"resource":`),
		"half a snapshot":       fmt.Sprintf(header, "inspect-snapshot", 1<<20, "x"),
		"an idle connection":    fmt.Sprintf(header, "health", 2, "{}"),
		"a preface and no more": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.Address())
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, text)
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
			answer, err := io.ReadAll(bufio.NewReader(conn))
			var timeout net.Error
			if err != nil {
				require.ErrorAs(t, err, &timeout)
				require.False(t, timeout.Timeout(), "the connection is still open")
			}
			t.Logf("%.30q", answer)
		})
	}
}

// A call that waits for a lock is not cut when the time for its body has passed.
func TestWaitIsNotCut(t *testing.T) {
	t.Parallel()
	// Connections may be idle for longer: the server must not close one that a call reuses.
	s := startLimited(t, func(l *limits.Limits) { l.BodyTimeout = slowTimeout })
	held := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"held","ttl":"10m"}`)
	waited := postAsync(t, s.Address(), "/v1/acquire", `{"resource":"held","ttl":"10m","wait":"10m"}`)
	eventually(t, "the call waits", func() bool {
		lock := mustPost(t, s.Address(), "/v1/inspect", `{"resource":"held"}`)["lock"].(map[string]any)
		return len(lock["waiters"].([]any)) > 0
	})
	slow, err := net.Dial("tcp", s.Address())
	require.NoError(t, err)
	defer slow.Close()
	_, err = fmt.Fprintf(slow, header, "acquire", 100, "{")
	require.NoError(t, err)
	_, _ = io.ReadAll(slow) // until the time for a body has passed
	mustPost(t, s.Address(), "/v1/release", fmt.Sprintf(`{"resource":"held","token":%v}`, held["token"]))
	require.NotNil(t, (<-waited)["token"])
}

// A listener has a bounded number of connections. Those that never show a protocol give
// way to others.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	s := startLimited(t, func(l *limits.Limits) { l.Connections = 3 })
	var open []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", s.Address())
		require.NoError(t, err)
		defer conn.Close()
		open = append(open, conn)
	}
	eventually(t, "a fourth connection is closed", func() bool {
		conn, err := net.Dial("tcp", s.Address())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, err = conn.Read(make([]byte, 1))
		timeout, ok := err.(net.Error)
		return !ok || !timeout.Timeout()
	})
	open[0].Close()
	eventually(t, "a call is served", func() bool {
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(newPost(t, s.Address(),
			"/v1/health", "{}"))
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == 200
	})
}
