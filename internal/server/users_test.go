package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// startWithUser starts a server with the administrator alice, and returns her secret.
func startWithUser(t *testing.T) (*server.Server, *auth.Users, string) {
	t.Helper()
	text := secret.New()
	users := auth.NewUsers([]auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(text)},
		Rules: auth.AdminRules()}})
	return startServer(t, func(c *server.Config) { c.Users = users }), users, text
}

// dialAs connects with a secret, or without one if it is empty.
func dialAs(t testing.TB, address, text string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, secret.DialOptions(nil, text)...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// send makes an HTTP call with an Authorization header, unless it is empty.
func send(t testing.TB, request *http.Request, authorization string) *http.Response {
	t.Helper()
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// Every gRPC method but health needs the secret of a user.
func TestMethodsNeedSecret(t *testing.T) {
	t.Parallel()
	s, _, text := startWithUser(t)
	for _, service := range []grpc.ServiceDesc{pb.LeaseService_ServiceDesc, pb.PolicyService_ServiceDesc,
		pb.RedisService_ServiceDesc, pb.ClusterService_ServiceDesc} {
		for _, wrong := range []string{"", secret.New()} {
			conn := dialAs(t, s.Address(), wrong)
			for _, m := range service.Methods {
				err := conn.Invoke(testContext(t), "/"+service.ServiceName+"/"+m.MethodName, &pb.HealthRequest{},
					&pb.HealthResponse{})
				if m.MethodName == "Health" {
					require.NoError(t, err)
					continue
				}
				require.Equal(t, codes.Unauthenticated, status.Code(err), m.MethodName)
				require.ErrorIs(t, wire.FromStatus(err), wire.ErrUnauthenticated)
			}
			for _, m := range service.Streams {
				stream, err := conn.NewStream(testContext(t), &m, "/"+service.ServiceName+"/"+m.StreamName)
				require.NoError(t, err)
				err = stream.RecvMsg(&pb.SessionResponse{})
				require.Equal(t, codes.Unauthenticated, status.Code(err), m.StreamName)
			}
		}
	}
	_, err := grpc_health_v1.NewHealthClient(dialAs(t, s.Address(), "")).Check(testContext(t),
		&grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = pb.NewLeaseServiceClient(dialAs(t, s.Address(), text)).Acquire(testContext(t),
		&pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
}

// Every HTTP call but health needs the secret of a user, also one with the header of
// a forwarded call.
func TestHTTPNeedsSecret(t *testing.T) {
	t.Parallel()
	s, _, text := startWithUser(t)
	for name, header := range map[string]string{
		"no secret": "", "unknown secret": secret.Header(secret.New()), "no scheme": text, "basic": "Basic " + text,
		"hash": secret.Header("sha256:00"), "password": secret.Header("hunter2"), "empty": "Bearer ",
	} {
		for _, path := range []string{"/v1/acquire", "/v1/watch", "/v1/save-snapshot", "/v1/status", "/v1/none",
			"/leased.v1.LeaseService/Acquire"} {
			for _, by := range []string{"", "n2"} {
				request := newPost(t, s.Address(), path, `{"resource":"a"}`)
				if by != "" {
					request.Header.Set("Leased-Forwarded", by)
				}
				response := send(t, request, header)
				require.Equal(t, http.StatusUnauthorized, response.StatusCode, "%s: %s", name, path)
				require.Contains(t, response.Header.Get("WWW-Authenticate"), "Bearer")
				answer, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Contains(t, string(answer), `"code":"unauthenticated"`)
				require.Contains(t, string(answer), "leased user add")
				require.NotContains(t, string(answer), text)
			}
		}
	}
	response, err := http.Get("http://" + s.Address() + "/readyz")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, http.StatusOK, send(t, newPost(t, s.Address(), "/v1/health", `{}`), "").StatusCode)
	require.Equal(t, http.StatusOK, send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"a"}`),
		secret.Header(text)).StatusCode)
}

// When a user is removed, its session stream, its watches and its waiting calls end,
// and its next call is rejected. Other users are not disturbed.
func TestRemovedUser(t *testing.T) {
	t.Parallel()
	s, users, text := startWithUser(t)
	bobs := secret.New()
	alice, bob := auth.User{Name: "alice", Hashes: []secret.Hash{secret.HashOf(text)}, Rules: auth.AdminRules()},
		auth.User{Name: "bob", Hashes: []secret.Hash{secret.HashOf(bobs)}, Rules: auth.AdminRules()}
	users.Replace([]auth.User{alice, bob})

	open := func(text string) pb.LeaseService_SessionClient {
		stream, err := pb.NewLeaseServiceClient(dialAs(t, s.Address(), text)).Session(testContext(t))
		require.NoError(t, err)
		id := engine.NewSessionID()
		require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 1, Session: id[:],
			Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(10 * time.Minute)}}}}}))
		answer, err := stream.Recv()
		require.NoError(t, err)
		require.Nil(t, answer.Answers[0].Error)
		return stream
	}
	removed, kept := open(text), open(bobs)
	watch := send(t, newPost(t, s.Address(), "/v1/watch", `{"resource":"a"}`), secret.Header(text))
	lines := bufio.NewReader(watch.Body)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "synced")
	require.Equal(t, http.StatusOK, send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"b","ttl":"10m"}`),
		secret.Header(bobs)).StatusCode)
	waits := make(chan error, 1)
	waiter := pb.NewLeaseServiceClient(dialAs(t, s.Address(), text))
	ctx := testContext(t)
	go func() {
		_, err := waiter.Acquire(ctx, &pb.AcquireRequest{Resource: "b", Wait: "10m"})
		waits <- err
	}()
	reader := pb.NewLeaseServiceClient(dialAs(t, s.Address(), bobs))
	eventually(t, "the call waits", func() bool {
		status, err := reader.Inspect(ctx, &pb.InspectRequest{Resource: "b"})
		return err == nil && len(status.Lock.Waiters) == 1
	})

	users.Replace([]auth.User{bob})
	for err == nil { // it may have been sent the topology
		_, err = removed.Recv()
	}
	require.ErrorContains(t, err, "alice", "the stream ends")
	last, err := io.ReadAll(lines)
	require.NoError(t, err, "the watch ends")
	require.Contains(t, string(last), `"code":"uncertain","message":`)
	require.Contains(t, string(last), "user alice was removed")
	require.ErrorIs(t, wire.FromStatus(<-waits), engine.ErrUncertain)
	_, err = waiter.Inspect(ctx, &pb.InspectRequest{Resource: "a"})
	require.ErrorIs(t, wire.FromStatus(err), wire.ErrUnauthenticated)

	id := engine.NewSessionID()
	require.NoError(t, kept.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 2, Session: id[:],
		Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(10 * time.Minute)}}}}}))
	_, err = kept.Recv()
	require.NoError(t, err)
}

// A user has two secrets while one replaces the other. The second does not disturb the
// streams of the first; when the first is removed, its streams end, its calls are
// rejected, and those of the second continue, also those that a member forwards.
func TestRemovedSecret(t *testing.T) {
	t.Parallel()
	before, after, members := secret.New(), secret.New(), secret.New()
	alice := func(texts ...string) []auth.User {
		list := []auth.User{{Name: "alice", Rules: auth.AdminRules()},
			{Name: "members", Hashes: []secret.Hash{secret.HashOf(members)}, Member: true}}
		for _, text := range texts {
			list[0].Hashes = append(list[0].Hashes, secret.HashOf(text))
		}
		return list
	}
	s, users := startWithUsers(t, alice(before)...)
	watch := func(text, user string) *bufio.Reader {
		request := newPost(t, s.Address(), "/v1/watch", `{"prefix":"job/"}`)
		if user != "" {
			request.Header.Set(auth.UserHeader, user)
		}
		lines := bufio.NewReader(send(t, request, secret.Header(text)).Body)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "synced")
		return lines
	}
	acquire := func(text, name string) int {
		return send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"`+name+`"}`), secret.Header(text)).StatusCode
	}
	reports := func(lines *bufio.Reader, name string) {
		for line := ""; !strings.Contains(line, name); {
			var err error
			line, err = lines.ReadString('\n')
			require.NoError(t, err, "the watch ends before %s: %s", name, line)
		}
	}
	old := watch(before, "")
	users.Replace(alice(before, after))
	fresh, forwarded := watch(after, ""), watch(members, "alice")
	require.Equal(t, http.StatusOK, acquire(before, "job/1"))
	reports(old, "job/1")
	require.Equal(t, http.StatusOK, acquire(after, "job/2"))
	reports(old, "job/2")

	users.Replace(alice(after))
	require.Equal(t, http.StatusUnauthorized, acquire(before, "job/3"))
	last, err := io.ReadAll(old)
	require.NoError(t, err)
	require.Contains(t, string(last), "its secret was removed")
	require.Equal(t, http.StatusOK, acquire(after, "job/3"))
	reports(fresh, "job/3")
	reports(forwarded, "job/3")

	request := newPost(t, s.Address(), "/v1/acquire", `{"resource":"job/4"}`)
	request.Header.Set(auth.UserHeader, "alice")
	rejected, err := io.ReadAll(send(t, request, secret.Header(before)).Body)
	require.NoError(t, err)
	require.Contains(t, string(rejected), "a member that this one does not know forwarded the call for user alice")
}

// The Go client sends its secret with all calls. A wrong secret fails at once, without
// retries.
func TestClientSendsSecret(t *testing.T) {
	t.Parallel()
	s, users, text := startWithUser(t)
	backend := newClientWith(t, []string{s.Address()}, remote.Config{Secret: text})
	locks, err := lease.New(backend)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	held, err := locks.Acquire(testContext(t), "a")
	require.NoError(t, err)
	_, err = backend.Inspect(testContext(t), "a")
	require.NoError(t, err)
	require.NoError(t, held.Release(testContext(t)))

	for _, text := range []string{"", secret.New()} {
		wrong := newClientWith(t, []string{s.Address()}, remote.Config{Secret: text})
		_, err = wrong.Inspect(testContext(t), "a")
		require.ErrorIs(t, err, wire.ErrUnauthenticated)
		locks, err := lease.New(wrong)
		require.NoError(t, err)
		_, err = locks.Acquire(context.Background(), "a") // no deadline: the call must not wait
		require.ErrorIs(t, err, wire.ErrUnauthenticated)
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.NotErrorIs(t, err, engine.ErrUncertain, "the service rejected the stream")
		require.ErrorIs(t, wrong.Watch(testContext(t), "a", func(engine.Status) {}), wire.ErrUnauthenticated)
		require.NoError(t, locks.Close(testContext(t)))
	}
	users.Replace(nil)
	eventually(t, "the client is rejected", func() bool { // its connection may still be closing
		_, err = backend.Inspect(testContext(t), "a")
		require.Error(t, err)
		return errors.Is(err, wire.ErrUnauthenticated)
	})
}

// Calls that members make need the account of a member, over gRPC and HTTP. An
// administrator has no such account, and a member account has no rights of an
// administrator.
func TestMemberCallsNeedMemberAccount(t *testing.T) {
	t.Parallel()
	s, users, alice := startWithUser(t)
	member := secret.New()
	users.Replace([]auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(alice)}, Rules: auth.AdminRules()},
		{Name: "members", Hashes: []secret.Hash{secret.HashOf(member)}, Member: true}})
	evil := testserver.FreeAddr(t)
	as := func(text string) pb.ClusterServiceClient {
		return pb.NewClusterServiceClient(dialAs(t, s.Address(), text))
	}
	ctx := testContext(t)
	for name, call := range map[string]func(pb.ClusterServiceClient) error{
		"announce": func(c pb.ClusterServiceClient) error {
			_, err := c.Announce(ctx, &pb.AnnounceRequest{Id: "n1", ApiAddress: evil})
			return err
		},
		"add-learner": func(c pb.ClusterServiceClient) error {
			_, err := c.AddLearner(ctx, &pb.AddLearnerRequest{Id: "n1", RaftAddress: evil, ApiAddress: evil})
			return err
		},
		"promote": func(c pb.ClusterServiceClient) error {
			_, err := c.Promote(ctx, &pb.PromoteRequest{Id: "n1"})
			return err
		},
	} {
		err := call(as(alice))
		require.ErrorContains(t, err, "requires a member account", name)
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden)
		body := `{"id":"n1","raftAddress":"` + evil + `","apiAddress":"` + evil + `"}`
		for _, by := range []string{"", "n2"} {
			request := newPost(t, s.Address(), "/v1/"+name, body)
			if by != "" {
				request.Header.Set("Leased-Forwarded", by)
			}
			require.Equal(t, http.StatusForbidden, send(t, request, secret.Header(alice)).StatusCode, name)
		}
	}
	status, err := as(alice).Status(ctx, &pb.StatusRequest{})
	require.NoError(t, err)
	require.Len(t, status.Members, 1)
	_, err = as(alice).Transfer(ctx, &pb.TransferRequest{})
	require.ErrorContains(t, err, "there is no other voter", "an operator may call it")

	_, err = as(member).AddLearner(ctx, &pb.AddLearnerRequest{Id: "n2", RaftAddress: evil, ApiAddress: "http://" + evil +
		"/x"})
	require.ErrorContains(t, err, "must be host:port")
	_, err = as(member).Announce(ctx, &pb.AnnounceRequest{Id: "n1", ApiAddress: s.Address()})
	require.NoError(t, err)
	_, err = as(member).Status(ctx, &pb.StatusRequest{})
	require.NoError(t, err, "members that form a cluster call it")
	_, err = as(member).Transfer(ctx, &pb.TransferRequest{})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden)
}

// While members reload their users one after the other, a client uses a member that
// knows it, and fails when all members reject it.
func TestClientTriesMembersThatKnowIt(t *testing.T) {
	t.Parallel()
	old, _, _ := startWithUser(t)
	reloaded, _, text := startWithUser(t)
	endpoints := []string{old.Address(), reloaded.Address()}
	_, err := newClientWith(t, endpoints, remote.Config{Secret: text}).Inspect(testContext(t), "a")
	require.NoError(t, err)
	locks, err := lease.New(newClientWith(t, endpoints, remote.Config{Secret: text}))
	require.NoError(t, err)
	held, err := locks.Acquire(testContext(t), "a")
	require.NoError(t, err)
	require.NoError(t, held.Release(testContext(t)))
	require.NoError(t, locks.Close(testContext(t)))
	unknown := newClientWith(t, endpoints, remote.Config{Secret: secret.New()})
	_, err = unknown.Inspect(context.Background(), "a") // no deadline: the call must not wait
	require.ErrorIs(t, err, wire.ErrUnauthenticated)
}
