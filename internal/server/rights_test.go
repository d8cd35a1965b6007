package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// newUser returns a user with rules such as "acquire:jobs/*", and its secret.
func newUser(t testing.TB, name string, rules ...string) (auth.User, string) {
	t.Helper()
	text := secret.New()
	user := auth.User{Name: name, Hashes: []secret.Hash{secret.HashOf(text)}}
	for _, rule := range rules {
		parsed, err := auth.ParseRule(rule)
		require.NoError(t, err)
		user.Rules = append(user.Rules, parsed)
	}
	return user, text
}

// startWithUsers starts a server with users.
func startWithUsers(t testing.TB, list ...auth.User) (*server.Server, *auth.Users) {
	t.Helper()
	users := auth.NewUsers(list)
	return startServer(t, func(c *server.Config) { c.Users = users }), users
}

// forAnyUser are the methods that need no right: ownership is checked instead, or there
// is nothing to hide from users.
var forAnyUser = map[string]bool{"Health": true, "OpenSession": true, "CloseSession": true, "Renew": true,
	"Release": true, "Sign": true,
	"Session": true, "WatchSession": true, "ListPolicies": true, "WatchTopology": true}

var services = []grpc.ServiceDesc{pb.LeaseService_ServiceDesc, pb.PolicyService_ServiceDesc,
	pb.RedisService_ServiceDesc, pb.ClusterService_ServiceDesc}

// A user without rules is refused by every method, over gRPC and HTTP, but those for
// any user.
func TestUserWithoutRights(t *testing.T) {
	t.Parallel()
	nobody, text := newUser(t, "nobody")
	s, _ := startWithUsers(t, nobody)
	conn := dialAs(t, s.Address(), text)
	path := func(name string) string { // OpenSession -> open-session
		var dashed strings.Builder
		for i, c := range name {
			if unicode.IsUpper(c) && i > 0 {
				dashed.WriteByte('-')
			}
			dashed.WriteRune(unicode.ToLower(c))
		}
		return "/v1/" + dashed.String()
	}
	overHTTP := func(service, name string) {
		for _, p := range []string{path(name), "/" + service + "/" + name} {
			response := send(t, newPost(t, s.Address(), p, `{}`), secret.Header(text))
			answer, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusForbidden, response.StatusCode, "%s: %s", p, answer)
			require.Contains(t, string(answer), `"code":"forbidden"`)
			require.Contains(t, string(answer), "leased user")
		}
	}
	for _, service := range services {
		for _, m := range service.Methods {
			if forAnyUser[m.MethodName] {
				continue
			}
			err := conn.Invoke(testContext(t), "/"+service.ServiceName+"/"+m.MethodName, &pb.HealthRequest{},
				&pb.HealthResponse{})
			require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden, m.MethodName)
			overHTTP(service.ServiceName, m.MethodName)
		}
		for _, m := range service.Streams {
			if forAnyUser[m.StreamName] {
				continue
			}
			stream, err := conn.NewStream(testContext(t), &m, "/"+service.ServiceName+"/"+m.StreamName)
			require.NoError(t, err)
			_ = stream.SendMsg(&pb.WatchRequest{Resource: "a"}) // the stream may have ended already
			_ = stream.CloseSend()
			require.ErrorIs(t, wire.FromStatus(stream.RecvMsg(&pb.SessionResponse{})), engine.ErrForbidden, m.StreamName)
			overHTTP(service.ServiceName, m.StreamName)
		}
	}
}

// An acquire on a session stream needs the right on each lock, and the stream goes on
// after a refusal.
func TestStreamNeedsRights(t *testing.T) {
	t.Parallel()
	alice, text := newUser(t, "alice", "acquire:jobs/*")
	s, _ := startWithUsers(t, alice)
	c := openStreamAs(t, s.Address(), text)
	id := engine.NewSessionID()
	require.Nil(t, c.call(id, openCall()).Error)
	for _, set := range [][]string{{"x"}, {"jobs/1", "x"}} {
		answer := c.call(id, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Resources: set}}})
		require.Equal(t, "forbidden", answer.Error.GetCode())
		require.Contains(t, answer.Error.Message, `user alice lacks the right acquire on lock "x"`)
		answer = c.call(id, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Resources: set,
			TtlNanos: 1e10}}})
		require.Equal(t, "forbidden", answer.Error.GetCode())
	}
	answer := c.call(id, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 2,
		Resources: []string{"jobs/1"}}}})
	require.Nil(t, answer.Error)
	require.NotZero(t, answer.Token)
}

// Where there are users, only those with the right metrics may scrape a member.
func TestMetricsNeedTheirRight(t *testing.T) {
	t.Parallel()
	prometheus, metricsSecret := newUser(t, "prometheus", "metrics")
	alice, otherSecret := newUser(t, "alice", "acquire:*", "read:*", "break:*", "policy:*", "cluster")
	users := auth.NewUsers([]auth.User{prometheus, alice})
	s := startServer(t, func(c *server.Config) { c.Users, c.Metrics = users, metrics.New("test", "") })
	for _, c := range []struct {
		name, header string
		status       int
		text         string
	}{
		{"with the right", secret.Header(metricsSecret), http.StatusOK, "leased_grants_total"},
		{"with all other rights", secret.Header(otherSecret), http.StatusForbidden, "leased user allow alice metrics"},
		{"without a secret", "", http.StatusUnauthorized, `"code":"unauthenticated"`},
		{"with a wrong secret", secret.Header(secret.New()), http.StatusUnauthorized, `"code":"unauthenticated"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "http://"+s.Address()+metrics.Path, nil)
			require.NoError(t, err)
			response := send(t, request, c.header)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, c.status, response.StatusCode)
			require.Contains(t, string(text), c.text)
		})
	}
}

// streamClient is a session stream without the logic of the Go client.
type streamClient struct {
	t      testing.TB
	stream pb.LeaseService_SessionClient
	lastID uint64
}

func openStreamAs(t testing.TB, address, text string) *streamClient {
	t.Helper()
	stream, err := pb.NewLeaseServiceClient(dialAs(t, address, text)).Session(testContext(t))
	require.NoError(t, err)
	return &streamClient{t: t, stream: stream}
}

// call runs one operation on a session.
func (c *streamClient) call(id engine.SessionID, op *pb.Operation) *pb.Answer {
	c.t.Helper()
	c.lastID++
	op.Id, op.Session = c.lastID, id[:]
	require.NoError(c.t, c.stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{op}}))
	for {
		message, err := c.stream.Recv()
		require.NoError(c.t, err)
		for _, a := range message.Answers {
			if a.Id == op.Id {
				return a
			}
		}
	}
}

func openCall() *pb.Operation {
	return &pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: 6e11}}}
}
