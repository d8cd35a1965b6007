package server_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

var quiet = slog.New(slog.DiscardHandler)

// testContext and eventually fail the test before its time is up.
var testContext, eventually = testserver.Context, testserver.Eventually

// startServer starts a server on a cluster of one member, in this process.
func startServer(t testing.TB, change ...func(*server.Config)) *server.Server {
	t.Helper()
	config := server.Config{Logger: quiet, Version: "test",
		Raft: raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet}}
	for _, f := range change {
		f(&config)
	}
	config.RedisTimeout = cmp.Or(config.RedisTimeout, busyTimeout(config.Redis))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(config, listener)
	require.NoError(t, err)
	require.NoError(t, s.Node().Bootstrap())
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-done)
	})
	eventually(t, "the member leads", s.Node().Leads)
	return s
}

// busyTimeout is the time for a request to a node of a fleet on a busy machine.
func busyTimeout(fleet engine.Fleet) time.Duration {
	return max(redlockadapter.DefaultNodeTimeout, min(3*time.Second, fleet.MaxTTL/10))
}

// newClient returns a client of the service, as another process would have it.
func newClient(t testing.TB, endpoints []string) *remote.Backend {
	t.Helper()
	return newClientWith(t, endpoints, remote.Config{})
}

func newClientWith(t testing.TB, endpoints []string, config remote.Config) *remote.Backend {
	t.Helper()
	b, err := remote.New(endpoints, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// dial connects to a member with gRPC.
func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// newPost returns a JSON call.
func newPost(t testing.TB, address, path, body string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), http.MethodPost, "http://"+address+path,
		strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	return request
}

// post makes a JSON call.
func post(t testing.TB, address, path, body string) (code int, answer map[string]any) {
	t.Helper()
	response, err := http.DefaultClient.Do(newPost(t, address, path, body))
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answer), string(text))
	return response.StatusCode, answer
}

// mustPost makes a JSON call that must succeed. It repeats a call that had no effect because a busy machine did not
// reach the leader or the Redis nodes in time.
func mustPost(t testing.TB, address, path, body string) map[string]any {
	t.Helper()
	var code int
	var answer map[string]any
	eventually(t, path+" is served", func() bool {
		code, answer = post(t, address, path, body)
		return code != http.StatusServiceUnavailable
	})
	require.Equal(t, http.StatusOK, code, answer)
	return answer
}

// postAsync makes a JSON call in the background and returns its answer.
func postAsync(t testing.TB, address, path, body string) <-chan map[string]any {
	t.Helper()
	request := newPost(t, address, path, body)
	answers := make(chan map[string]any, 1)
	go func() {
		var answer map[string]any
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = json.NewDecoder(response.Body).Decode(&answer)
			response.Body.Close()
		}
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	return answers
}

// leaseName returns the fields that name a granted lease in later calls.
func leaseName(granted map[string]any) string {
	return fmt.Sprintf(`{"resource":%q,"token":%.0f}`, granted["resource"], granted["token"])
}

// watchEvents watches locks, and returns a function that waits for the next event.
func watchEvents(t testing.TB, address string, request *pb.WatchRequest) (next func() *pb.Event) {
	t.Helper()
	stream, err := pb.NewLeaseServiceClient(dial(t, address)).Watch(testContext(t), request)
	require.NoError(t, err)
	return func() *pb.Event {
		t.Helper()
		e, err := stream.Recv()
		require.NoError(t, err)
		return e
	}
}
