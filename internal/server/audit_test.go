package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// audited is a server with users and an audit log.
type audited struct {
	*server.Server
	path                 string
	alice, members, bobs string // secrets: alice may do everything, bob only acquire b/*
}

func startAudited(t testing.TB, change ...func(*server.Config)) *audited {
	t.Helper()
	a := &audited{path: filepath.Join(t.TempDir(), "audit.log"), alice: secret.New(), members: secret.New(),
		bobs: secret.New()}
	users := auth.NewUsers([]auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(a.alice)},
		Rules: auth.AdminRules()},
		{Name: "bob", Hashes: []secret.Hash{secret.HashOf(a.bobs)}, Rules: auth.Rules{{Right: auth.Acquire, Pattern: "b/*"}}},
		{Name: "members", Hashes: []secret.Hash{secret.HashOf(a.members)}, Member: true}})
	log, err := audit.Open(audit.Config{Path: a.path, Member: "n1", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(log.Close)
	a.Server = startServer(t, append(change, func(c *server.Config) { c.Users, c.Audit = users, log })...)
	return a
}

// lines waits until the file has n lines, and returns them.
func (a *audited) lines(t testing.TB, n int) (records []audit.Record) {
	t.Helper()
	var text []byte
	eventually(t, "the lines are written", func() bool {
		var err error
		text, err = os.ReadFile(a.path)
		require.NoError(t, err)
		return strings.Count(string(text), "\n") >= n
	})
	for _, own := range []string{a.alice, a.bobs, a.members} {
		require.NotContains(t, string(text), own[10:], "a secret is in the file")
	}
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		require.Equal(t, "n1", r.Member)
		require.WithinDuration(t, time.Now(), r.Time, time.Hour)
		records = append(records, r)
	}
	return records
}

// Each call that grants, takes away or changes something has one line, with the user
// and the address of the caller, and so has each refusal.
func TestAuditEvents(t *testing.T) {
	t.Parallel()
	s := startAudited(t)
	ctx := testContext(t)
	conn, member := dialAs(t, s.Address(), s.alice), dialAs(t, s.Address(), s.members)
	api, policies, redis, cluster := pb.NewLeaseServiceClient(conn), pb.NewPolicyServiceClient(conn),
		pb.NewRedisServiceClient(conn), pb.NewClusterServiceClient(conn)
	other, peer := testserver.FreeAddr(t), pb.NewClusterServiceClient(member)
	held, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "first", Ttl: "10m", Holder: "h"})
	require.NoError(t, err)
	var snapshot []byte
	do := func(_ any, err error) error { return err }
	for i, c := range []struct {
		want audit.Record
		call func() error
	}{
		{audit.Record{Event: audit.Grant, User: "alice", Resources: []string{"x", "y"}, Holder: "h", Mode: "correctness"},
			func() error {
				return do(api.Acquire(ctx, &pb.AcquireRequest{Resources: []string{"y", "x"}, Ttl: "10m", Holder: "h"}))
			}},
		{audit.Record{Event: audit.Grant, User: "bob", Resources: []string{"b/1"}, Holder: "bob@127.0.0.1",
			Mode: "correctness"}, func() error {
			return answers(t, send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"b/1","ttl":"10m"}`),
				secret.Header(s.bobs)), 200)
		}},
		{audit.Record{Event: audit.Forbidden, User: "bob", Method: pb.LeaseService_Acquire_FullMethodName, Code: "forbidden"},
			func() error {
				return answers(t, send(t, newPost(t, s.Address(), "/v1/acquire", `{"resource":"c/1"}`), secret.Header(s.bobs)), 403)
			}},
		{audit.Record{Event: audit.Forbidden, User: "bob", Method: pb.LeaseService_Break_FullMethodName, Code: "forbidden"},
			func() error {
				_, err := pb.NewLeaseServiceClient(dialAs(t, s.Address(), s.bobs)).Break(ctx, &pb.BreakRequest{Resource: "first",
					Token: held.Token})
				require.Error(t, err)
				return nil
			}},
		{audit.Record{Event: audit.Forbidden, User: "bob", Method: pb.ClusterService_SaveSnapshot_FullMethodName,
			Code: "forbidden"}, func() error {
			return answers(t, send(t, newPost(t, s.Address(), "/v1/save-snapshot", `{}`), secret.Header(s.bobs)), 403)
		}},
		{audit.Record{Event: audit.Forbidden, User: "bob", Method: pb.LeaseService_Watch_FullMethodName, Code: "forbidden"},
			func() error {
				return answers(t, send(t, newPost(t, s.Address(), "/v1/watch", `{"resource":"c"}`), secret.Header(s.bobs)), 403)
			}},
		{audit.Record{Event: audit.Unauthenticated, Method: pb.LeaseService_Inspect_FullMethodName, Code: "unauthenticated"},
			func() error {
				return answers(t, send(t, newPost(t, s.Address(), "/v1/inspect", `{"resource":"c"}`), secret.Header(secret.New())),
					401)
			}},
		{audit.Record{Event: audit.Unauthenticated, Method: pb.LeaseService_Session_FullMethodName, Code: "unauthenticated"},
			func() error {
				stream, err := pb.NewLeaseServiceClient(dialAs(t, s.Address(), "")).Session(ctx)
				require.NoError(t, err)
				_, err = stream.Recv()
				require.Error(t, err)
				return nil
			}},
		{audit.Record{Event: audit.Break, User: "alice", Resources: []string{"first"}, Token: held.Token}, func() error {
			return do(api.Break(ctx, &pb.BreakRequest{Resource: "first", Token: held.Token}))
		}},
		{audit.Record{Event: audit.Break, User: "alice", Resources: []string{"first"}, Token: held.Token, Code: "not-held"},
			func() error {
				require.Error(t, do(api.Break(ctx, &pb.BreakRequest{Resource: "first", Token: held.Token})))
				return nil
			}},
		{audit.Record{Event: audit.PolicySet, User: "alice", Subject: "p/*", Mode: "correctness", Detail: "ttl 20s"},
			func() error {
				return do(policies.SetPolicy(ctx, &pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "p/", Mode: "correctness",
					Ttl: "20s"}}))
			}},
		{audit.Record{Event: audit.PolicyDelete, User: "alice", Subject: "p/*"}, func() error {
			return do(policies.DeletePolicy(ctx, &pb.DeletePolicyRequest{Prefix: "p/"}))
		}},
		{audit.Record{Event: audit.MigrationAbort, User: "alice", Subject: "p/*", Code: "invalid"}, func() error {
			require.Error(t, do(policies.AbortMigration(ctx, &pb.AbortMigrationRequest{Prefix: "p/"})))
			return nil
		}},
		{audit.Record{Event: audit.FleetSet, User: "alice", Subject: "a:1,b:1", Code: "invalid"}, func() error {
			require.Error(t, do(redis.SetFleet(ctx, &pb.SetFleetRequest{Fleet: &pb.RedisFleet{Namespace: "n", MaxTtl: "1m",
				Addresses: []string{"a:1", "b:1"}}})))
			return nil
		}},
		{audit.Record{Event: audit.FloorSet, User: "alice", Code: "invalid"}, func() error {
			require.Error(t, do(redis.ProvideFloor(ctx, &pb.ProvideFloorRequest{})))
			return nil
		}},
		{audit.Record{Event: audit.MemberAnnounce, User: "members", Subject: "n1", Detail: "api " + s.Address()},
			func() error {
				return do(peer.Announce(ctx, &pb.AnnounceRequest{Id: "n1", ApiAddress: s.Address()}))
			}},
		{audit.Record{Event: audit.MemberAdd, User: "members", Subject: "n2", Detail: "raft " + other + ", api " + other},
			func() error {
				return do(peer.AddLearner(ctx, &pb.AddLearnerRequest{Id: "n2", RaftAddress: other, ApiAddress: other}))
			}},
		{audit.Record{Event: audit.MemberPromote, User: "members", Subject: "n9", Code: "invalid"}, func() error {
			require.Error(t, do(peer.Promote(ctx, &pb.PromoteRequest{Id: "n9"})))
			return nil
		}},
		{audit.Record{Event: audit.MemberRemove, User: "alice", Subject: "n2"}, func() error {
			return do(cluster.Remove(ctx, &pb.RemoveRequest{Id: "n2"}))
		}},
		{audit.Record{Event: audit.MemberJoin, User: "alice", Code: "invalid"}, func() error {
			require.Error(t, do(cluster.Join(ctx, &pb.JoinRequest{Address: other})))
			return nil
		}},
		{audit.Record{Event: audit.LeaderTransfer, User: "alice", Code: "invalid"}, func() error {
			require.Error(t, do(cluster.Transfer(ctx, &pb.TransferRequest{})))
			return nil
		}},
		{audit.Record{Event: audit.SnapshotSave, User: "alice"}, func() error {
			response := send(t, newPost(t, s.Address(), "/v1/save-snapshot", `{}`), secret.Header(s.alice))
			var err error
			snapshot, err = io.ReadAll(response.Body)
			return err
		}},
		{audit.Record{Event: audit.SnapshotRestore, User: "alice"}, func() error {
			stream, err := cluster.RestoreSnapshot(ctx)
			require.NoError(t, err)
			require.NoError(t, stream.Send(&pb.Chunk{Data: snapshot}))
			return do(stream.CloseAndRecv())
		}},
	} {
		require.NoError(t, c.call(), "%+v", c.want)
		records := s.lines(t, i+2)
		require.Len(t, records, i+2, "%+v", c.want)
		got := records[i+1]
		require.Regexp(t, `^127\.0\.0\.1:\d+$`, got.Address, "%+v", got)
		if c.want.Token == 0 {
			require.Equal(t, c.want.Event == audit.Grant, got.Token != 0)
			got.Token = 0
		}
		if c.want.Code != "" {
			require.NotEmpty(t, got.Detail, "why it failed")
			got.Detail = ""
		}
		got.Time, got.Member, got.Address = time.Time{}, "", ""
		require.Equal(t, c.want, got)
	}
}

// answers returns nil if a response has this status.
func answers(t *testing.T, response *http.Response, want int) error {
	t.Helper()
	require.Equal(t, want, response.StatusCode)
	return nil
}

// The grants of a session stream are recorded when the client gets them, also those
// that it waited for, and leases that expire or are released are recorded without a call.
func TestAuditOfSessionStreams(t *testing.T) {
	t.Parallel()
	s := startAudited(t)
	backend := newClientWith(t, []string{s.Address()}, remote.Config{Secret: s.alice})
	open := func(ttl time.Duration) engine.Session {
		session, err := backend.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
		require.NoError(t, err)
		return session
	}
	first, second := open(10*time.Second), open(10*time.Minute)
	names := []fencing.Resource{"a"}
	held, err := first.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: names, Holder: "first"})
	require.NoError(t, err)
	// The first session is not renewed.
	waited, err := second.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: names, Holder: "second", Wait: true})
	require.NoError(t, err)
	bob := newClientWith(t, []string{s.Address()}, remote.Config{Secret: s.bobs})
	session, err := bob.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(t, err)
	_, err = session.Acquire(testContext(t), engine.Request{Nonce: 1, Resources: names})
	require.ErrorIs(t, err, engine.ErrForbidden)

	s.lines(t, 4)
	require.NoError(t, second.Release(testContext(t), engine.Held{Nonce: 1}))

	records := s.lines(t, 5)
	require.Len(t, records, 5)
	for i, want := range []audit.Record{
		{Event: audit.Grant, User: "alice", Holder: "first", Resources: []string{"a"}, Token: uint64(held.Token),
			Mode: "correctness"},
		{Event: audit.Expire, User: "alice", Holder: "first", Resources: []string{"a"}, Token: uint64(held.Token),
			Mode: "correctness"},
		{Event: audit.Grant, User: "alice", Holder: "second", Resources: []string{"a"}, Token: uint64(waited.Token),
			Mode: "correctness"},
		{Event: audit.Forbidden, User: "bob", Code: "forbidden"},
		{Event: audit.Release, User: "alice", Holder: "second", Resources: []string{"a"}, Token: uint64(waited.Token),
			Mode: "correctness"},
	} {
		got := records[i]
		require.Equal(t, want.Event == audit.Expire || want.Event == audit.Release, got.Address == "")
		if got.Event == audit.Forbidden {
			require.Contains(t, got.Method, "Session")
			require.Contains(t, got.Detail, "acquire")
			got.Method, got.Detail = "", ""
		}
		got.Time, got.Member, got.Address = time.Time{}, "", ""
		require.Equal(t, want, got)
	}
}

// Grants in efficiency mode that a member acquires for its callers are recorded, those
// of a session stream and of unary calls.
func TestAuditOfEfficiencyMode(t *testing.T) {
	t.Parallel()
	fleet := fleetOf(startRedis(t, 1), longTTL)
	s := startAudited(t, func(c *server.Config) { c.Redis = fleet })
	ctx := testContext(t)
	conn := dialAs(t, s.Address(), s.alice)
	_, err := pb.NewPolicyServiceClient(conn).SetPolicy(ctx,
		&pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "fast/", Mode: "efficiency"}})
	require.NoError(t, err)
	unary, err := pb.NewLeaseServiceClient(conn).Acquire(ctx, &pb.AcquireRequest{Resource: "fast/1", Wait: "2m",
		Holder: "h"})
	require.NoError(t, err)
	session, err := newClientWith(t, []string{s.Address()}, remote.Config{Secret: s.alice}).Efficiency().Open(ctx,
		engine.SessionConfig{ID: engine.NewSessionID(), TTL: longTTL})
	require.NoError(t, err)
	streamed, err := session.Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{"fast/2"}, Holder: "h"})
	require.NoError(t, err)
	records := s.lines(t, 3)
	require.Equal(t, audit.PolicySet, records[0].Event)
	for i, token := range []uint64{unary.Token, uint64(streamed.Token)} {
		got := records[i+1]
		require.NotEmpty(t, got.Address)
		got.Time, got.Member, got.Address = time.Time{}, "", ""
		require.Equal(t, audit.Record{Event: audit.Grant, User: "alice", Holder: "h",
			Resources: []string{fmt.Sprintf("fast/%d", i+1)}, Token: token, Mode: "efficiency"}, got)
	}
}

// The address of a forwarded call is that of its caller, if a member reports it. Other
// callers cannot claim an address.
func TestAuditOfForwardedCalls(t *testing.T) {
	t.Parallel()
	s := startAudited(t)
	for i, c := range []struct {
		secret, user string
		status       int
		want         audit.Record
	}{
		{s.members, "alice", 200, audit.Record{Event: audit.Grant, User: "alice", Address: "192.0.2.7", Via: "127.0.0.1:"}},
		{s.alice, "", 200, audit.Record{Event: audit.Grant, User: "alice", Address: "127.0.0.1:"}},
		{s.alice, "bob", 403, audit.Record{Event: audit.Forbidden, Address: "127.0.0.1:"}},
	} {
		request := newPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"b/%d","ttl":"10m"}`, i))
		request.Header.Set("X-Forwarded-For", "192.0.2.7")
		request.Header.Set("Leased-Forwarded", "n2")
		if c.user != "" {
			request.Header.Set(auth.UserHeader, c.user)
		}
		require.NoError(t, answers(t, send(t, request, secret.Header(c.secret)), c.status))
		got := s.lines(t, i+1)[i]
		require.Equal(t, [2]string{string(c.want.Event), c.want.User}, [2]string{string(got.Event), got.User})
		require.Contains(t, got.Address, c.want.Address)
		require.Equal(t, c.want.Via == "", got.Via == "")
		require.Contains(t, got.Via, c.want.Via)
	}
}

// BenchmarkAudit compares grants over a session stream with and without an audit
// file, in one process.
//
//	go test -run '^$' -bench Audit ./internal/server
func BenchmarkAudit(b *testing.B) {
	on := startAudited(b)
	alice := newClientWith(b, []string{on.Address()}, remote.Config{Secret: on.alice})
	users := auth.NewUsers([]auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(on.alice)},
		Rules: auth.AdminRules()}})
	off := startServer(b, func(c *server.Config) { c.Users = users })
	unaudited := newClientWith(b, []string{off.Address()}, remote.Config{Secret: on.alice})
	for _, callers := range []int{1, 64} {
		for name, backend := range map[string]*remote.Backend{"on": alice, "off": unaudited} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				session, err := backend.Open(testContext(b), engine.SessionConfig{ID: engine.NewSessionID(), TTL: engine.MaxTTL})
				require.NoError(b, err)
				measure(b, os.Getpid(), callers, func(ctx context.Context, nonce engine.Nonce, name string) error {
					if _, err := session.Acquire(ctx,
						engine.Request{Nonce: nonce, Resources: []fencing.Resource{fencing.Resource(name)}}); err != nil {
						return err
					}
					return session.Release(ctx, engine.Held{Nonce: nonce})
				})
			})
		}
	}
}
