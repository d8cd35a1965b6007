package server_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/watch"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// startGuarded starts a server with one user, and returns its secret.
func startGuarded(t *testing.T) (*server.Server, *auth.Users, string) {
	t.Helper()
	text := secret.New()
	users := auth.NewUsers([]auth.User{{Name: "alice", Hash: secret.HashOf(text)}})
	return startOne(t, func(c *server.Config) { c.Users = users }), users, text
}

// dialAs is a connection that shows a secret, none if it is empty.
func dialAs(t *testing.T, address, text string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, secret.DialOptions(nil, text)...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// send makes an HTTP call with a header, none if it is empty.
func send(t *testing.T, request *http.Request, authorization string) *http.Response {
	t.Helper()
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(request.WithContext(patient(t)))
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// TestEveryMethodAsksWhoCalls: by gRPC, every method but health is refused
// without a secret, and nothing has happened.
func TestEveryMethodAsksWhoCalls(t *testing.T) {
	s, _, text := startGuarded(t)
	for _, service := range []grpc.ServiceDesc{pb.LeaseService_ServiceDesc, pb.PolicyService_ServiceDesc, pb.RedisService_ServiceDesc, pb.ClusterService_ServiceDesc} {
		for _, shown := range []string{"", secret.New()} {
			conn := dialAs(t, s.Address(), shown)
			for _, m := range service.Methods {
				err := conn.Invoke(patient(t), "/"+service.ServiceName+"/"+m.MethodName, &pb.HealthRequest{}, &pb.HealthResponse{})
				if m.MethodName == "Health" {
					require.NoError(t, err)
					continue
				}
				require.Equal(t, codes.Unauthenticated, status.Code(err), m.MethodName)
				require.ErrorIs(t, wire.FromStatus(err), wire.ErrUnauthenticated)
			}
			for _, m := range service.Streams {
				stream, err := conn.NewStream(patient(t), &m, "/"+service.ServiceName+"/"+m.StreamName)
				require.NoError(t, err)
				err = stream.RecvMsg(&pb.SessionResponse{})
				require.Equal(t, codes.Unauthenticated, status.Code(err), m.StreamName)
			}
		}
	}
	_, err := grpc_health_v1.NewHealthClient(dialAs(t, s.Address(), "")).Check(patient(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = pb.NewLeaseServiceClient(dialAs(t, s.Address(), text)).Acquire(patient(t), &pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
}

// TestHTTPAsksWhoCalls: the same over HTTP. That a member has forwarded a call is
// no proof of anything.
func TestHTTPAsksWhoCalls(t *testing.T) {
	s, _, text := startGuarded(t)
	for name, header := range map[string]string{
		"no secret": "", "another secret": secret.Header(secret.New()), "no kind": text, "basic": "Basic " + text,
		"a hash": secret.Header("sha256:00"), "a password": secret.Header("hunter2"), "nothing": "Bearer ",
	} {
		for _, path := range []string{"/v1/acquire", "/v1/watch", "/v1/save-snapshot", "/v1/status", "/v1/none", "/leased.v1.LeaseService/Acquire"} {
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
				require.Contains(t, string(answer), "leased user add", "it says what to do")
				require.NotContains(t, string(answer), text)
			}
		}
	}
	response, err := http.Get("http://" + s.Address() + "/healthz")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, http.StatusOK, send(t, newPost(t, s.Address(), "/v1/health", `{}`), "").StatusCode)
	require.Equal(t, http.StatusOK, send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"a"}`), secret.Header(text)).StatusCode)
}

// TestRemovedUser: the next call of a removed user is refused, and what it has
// under way ends: its session stream, its watches, a call that waits. A user that
// stays notices nothing.
func TestRemovedUser(t *testing.T) {
	s, users, text := startGuarded(t)
	stays := secret.New()
	alice, bob := auth.User{Name: "alice", Hash: secret.HashOf(text)}, auth.User{Name: "bob", Hash: secret.HashOf(stays)}
	users.Replace([]auth.User{alice, bob})

	open := func(text string) pb.LeaseService_SessionClient {
		stream, err := pb.NewLeaseServiceClient(dialAs(t, s.Address(), text)).Session(patient(t))
		require.NoError(t, err)
		id := engine.NewSessionID()
		require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 1, Session: id[:],
			Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(time.Minute)}}}}}))
		answer, err := stream.Recv()
		require.NoError(t, err)
		require.Nil(t, answer.Answers[0].Error)
		return stream
	}
	removed, kept := open(text), open(stays)
	watch := send(t, newPost(t, s.Address(), "/v1/watch", `{"resource":"a"}`), secret.Header(text))
	lines := bufio.NewReader(watch.Body)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "synced")
	require.Equal(t, http.StatusOK, send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"b","ttl":"10m"}`), secret.Header(stays)).StatusCode)
	waits := make(chan error, 1)
	waiter := pb.NewLeaseServiceClient(dialAs(t, s.Address(), text))
	ctx := patient(t)
	go func() {
		_, err := waiter.Acquire(ctx, &pb.AcquireRequest{Resource: "b", Wait: "10m"})
		waits <- err
	}()
	reader := pb.NewLeaseServiceClient(dialAs(t, s.Address(), stays))
	eventually(t, "it waits", func() bool {
		status, err := reader.Inspect(ctx, &pb.InspectRequest{Resource: "b"})
		return err == nil && len(status.Lock.Waiters) == 1
	})

	users.Replace([]auth.User{bob})
	_, err = removed.Recv()
	require.Error(t, err, "the stream goes on")
	last, err := io.ReadAll(lines)
	require.NoError(t, err, "the watch ends")
	require.Contains(t, string(last), `"code":"uncertain","message":`, "and says so")
	require.Contains(t, string(last), "user alice was removed")
	require.ErrorIs(t, wire.FromStatus(<-waits), engine.ErrUncertain)
	_, err = waiter.Inspect(ctx, &pb.InspectRequest{Resource: "a"})
	require.ErrorIs(t, wire.FromStatus(err), wire.ErrUnauthenticated)

	id := engine.NewSessionID()
	require.NoError(t, kept.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 2, Session: id[:],
		Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(time.Minute)}}}}}))
	_, err = kept.Recv()
	require.NoError(t, err, "who stays is not disturbed")
}

// TestClientWithASecret: the Go client shows it on its stream and beside it, and
// says at once what is wrong with it.
func TestClientWithASecret(t *testing.T) {
	s, users, text := startGuarded(t)
	backend := client(t, []string{s.Address()}, remote.WithSecret(text))
	locks, err := lease.New(backend)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	held, err := locks.Acquire(patient(t), "a")
	require.NoError(t, err)
	_, err = backend.Inspect(patient(t), "a")
	require.NoError(t, err)
	require.NoError(t, held.Release(patient(t)))

	for _, options := range [][]remote.Option{nil, {remote.WithSecret(secret.New())}} {
		stranger := client(t, []string{s.Address()}, options...)
		_, err = stranger.Inspect(patient(t), "a")
		require.ErrorIs(t, err, wire.ErrUnauthenticated)
		locks, err := lease.New(stranger)
		require.NoError(t, err)
		_, err = locks.Acquire(context.Background(), "a") // without a limit: it must not wait
		require.ErrorIs(t, err, wire.ErrUnauthenticated)
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.NotErrorIs(t, err, engine.ErrUncertain, "the stream was refused at the door")
		require.ErrorIs(t, stranger.Watch(patient(t), "a", func(engine.Status) {}), wire.ErrUnauthenticated)
		require.NoError(t, locks.Close(patient(t)))
	}
	users.Replace(nil)
	_, err = backend.Inspect(patient(t), "a")
	require.ErrorIs(t, err, wire.ErrUnauthenticated)
}

// TestOnlyMembersSayWhereMembersAre: who can say where the API of a member is
// gets the secrets that are shown there. A user who is no member cannot, by any
// way; what is no business of members stays open to it.
func TestOnlyMembersSayWhereMembersAre(t *testing.T) {
	s, users, alice := startGuarded(t)
	member := secret.New()
	users.Replace([]auth.User{{Name: "alice", Hash: secret.HashOf(alice)}, {Name: "members", Hash: secret.HashOf(member), Member: true}})
	evil := freePort(t)
	as := func(text string) pb.ClusterServiceClient {
		return pb.NewClusterServiceClient(dialAs(t, s.Address(), text))
	}
	ctx := patient(t)
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
		"join": func(c pb.ClusterServiceClient) error {
			_, err := c.Join(ctx, &pb.JoinRequest{Address: evil})
			return err
		},
		"set-fleet": func(pb.ClusterServiceClient) error {
			_, err := pb.NewRedisServiceClient(dialAs(t, s.Address(), alice)).SetFleet(ctx, &pb.SetFleetRequest{})
			return err
		},
		"restore-snapshot": func(c pb.ClusterServiceClient) error {
			stream, err := c.RestoreSnapshot(ctx)
			if err == nil {
				_, err = stream.CloseAndRecv()
			}
			return err
		},
	} {
		require.ErrorContains(t, call(as(alice)), "is for the account of a member", name)
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
	require.ErrorContains(t, err, "there is no other member that votes", "an operator may still ask for it")

	_, err = as(member).AddLearner(ctx, &pb.AddLearnerRequest{Id: "n2", RaftAddress: evil, ApiAddress: "http://" + evil + "/x"})
	require.ErrorContains(t, err, "must be host:port")
	_, err = as(member).Announce(ctx, &pb.AnnounceRequest{Id: "n1", ApiAddress: s.Address()})
	require.NoError(t, err)
}

// TestReloadMemberByMember: while members read their users again one after the
// other, a client gets in where it is known, and fails when all have refused.
func TestReloadMemberByMember(t *testing.T) {
	old, _, _ := startGuarded(t)
	reloaded, _, text := startGuarded(t)
	endpoints := []string{old.Address(), reloaded.Address()}
	_, err := client(t, endpoints, remote.WithSecret(text)).Inspect(patient(t), "a")
	require.NoError(t, err)
	locks, err := lease.New(client(t, endpoints, remote.WithSecret(text)))
	require.NoError(t, err)
	held, err := locks.Acquire(patient(t), "a")
	require.NoError(t, err)
	require.NoError(t, held.Release(patient(t)))
	require.NoError(t, locks.Close(patient(t)))
	nobody := client(t, endpoints, remote.WithSecret(secret.New()))
	_, err = nobody.Inspect(context.Background(), "a") // without a limit: it must not wait
	require.ErrorIs(t, err, wire.ErrUnauthenticated)
}
