package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// migrationOf returns the migration of a prefix, or nil if there is none.
func migrationOf(t testing.TB, address, prefix string) map[string]any {
	t.Helper()
	migrations, _ := mustPost(t, address, "/v1/list-policies", `{}`)["migrations"].([]any)
	for _, m := range migrations {
		if m := m.(map[string]any); m["prefix"] == prefix {
			return m
		}
	}
	return nil
}

// awaitMigration returns when the migration of a prefix waits for something.
func awaitMigration(t testing.TB, address, prefix, waitingFor string) {
	t.Helper()
	eventually(t, "the migration waits for "+waitingFor, func() bool {
		text, _ := migrationOf(t, address, prefix)["waitingFor"].(string)
		return strings.Contains(text, waitingFor)
	})
}

// A lock migrates to efficiency mode and back, and its tokens grow all the way. It is
// not granted during a migration, and a lease is lost with the reason.
func TestMigrations(t *testing.T) {
	t.Parallel()
	const maxTTL = 10 * time.Second // the migration to correctness mode waits for it
	s := startOnFleet(t, fleetOf(startRedis(t, 3), maxTTL))
	a := s.Address()
	last := 0.0
	acquire := func(mode engine.Mode, ttl string) map[string]any {
		l := mustPost(t, a, "/v1/acquire", fmt.Sprintf(`{"resource":"moves/a","ttl":%q}`, ttl))
		require.Equal(t, mode.String(), l["mode"])
		require.Greater(t, l["token"], last)
		last = l["token"].(float64)
		return l
	}
	refused := func() {
		for _, call := range []string{`{"resource":"moves/a"}`, `{"resource":"moves/a","wait":"20ms"}`} {
			code, answer := post(t, a, "/v1/acquire", call)
			require.Equal(t, http.StatusServiceUnavailable, code, answer)
			require.Contains(t, answer["message"], "from")
		}
	}
	held := acquire(engine.Correctness, "5m")
	startMigration(t, a, "moves/", engine.Efficiency, false)
	awaitMigration(t, a, "moves/", "1 holder to release")
	refused()
	mustPost(t, a, "/v1/renew", leaseName(held))
	mustPost(t, a, "/v1/release", leaseName(held))
	awaitMode(t, a, "moves/", engine.Efficiency)

	held = acquire(engine.Efficiency, "10s")
	startMigration(t, a, "moves/", engine.Correctness, false)
	awaitMigration(t, a, "moves/", "leases in efficiency mode to end")
	refused()
	code, answer := post(t, a, "/v1/renew", leaseName(held))
	require.Equal(t, http.StatusGone, code, answer)
	require.Equal(t, "taken", answer["code"])
	require.Contains(t, answer["message"], "from efficiency to correctness")
	code, answer = post(t, a, "/v1/set-policy", `{"policy":{"prefix":"moves/","mode":"efficiency"}}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "abort it first")
	waited := mustPost(t, a, "/v1/acquire", `{"resource":"moves/a","wait":"2m"}`)
	require.Equal(t, "correctness", waited["mode"], "a waiting request continues after the migration")
	require.Greater(t, waited["token"], last)
	require.Nil(t, migrationOf(t, a, "moves/"))
}

// An aborted migration leaves the locks in their mode, and their leases held.
func TestAbortMigration(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	a := s.Address()
	first := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"1m"}`)
	startMigration(t, a, "fast/", engine.Correctness, false)
	awaitMigration(t, a, "fast/", "leases in efficiency mode to end, ")
	waiting := postAsync(t, a, "/v1/acquire", `{"resource":"fast/b","wait":"2m"}`)
	mustPost(t, a, "/v1/abort-migration", `{"prefix":"fast/"}`)
	require.Nil(t, migrationOf(t, a, "fast/"))
	require.Equal(t, "efficiency", (<-waiting)["mode"])
	require.Equal(t, true, mustPost(t, a, "/v1/release", leaseName(first))["released"], "the lease was kept")
	next := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "efficiency", next["mode"])
	require.Greater(t, next["token"], first["token"])
}

// Waiters in one mode are served in the other after a migration.
func TestWaitersFollowMigration(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	a := s.Address()
	for _, to := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		held := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"20s"}`) // the Redis nodes keep it for so long
		waiting := postAsync(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"20s","holder":"ben","wait":"2m"}`)
		eventually(t, "the request waits", func() bool {
			return strings.Contains(fmt.Sprint(mustPost(t, a, "/v1/inspect", `{"resource":"fast/a"}`)), "holder:ben")
		})
		setMode(t, a, "fast/", to)
		next := <-waiting
		require.Equal(t, to.String(), next["mode"], next)
		require.Greater(t, next["token"], held["token"])
		mustPost(t, a, "/v1/release", leaseName(next))
	}
}

// An efficiency policy that is set before the Redis nodes run takes effect when they
// do, without an operator.
func TestPolicyBeforeRedis(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	for _, r := range servers {
		r.Stop()
	}
	s := startServer(t, func(c *server.Config) { c.Redis = fleetOf(servers, longTTL) })
	startMigration(t, s.Address(), "fast/", engine.Efficiency, false)
	awaitMigration(t, s.Address(), "fast/", "0 of 3 Redis nodes have reported their tokens, 2 are needed")
	code, answer := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	for _, r := range servers {
		require.NoError(t, r.Start())
	}
	awaitMode(t, s.Address(), "fast/", engine.Efficiency)
	require.Equal(t, "efficiency", mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)["mode"])
}

// A migration to correctness mode completes only when a quorum of the nodes has the
// new version, also with now.
func TestMigrationNeedsQuorum(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	s := startOnFleet(t, fleetOf(servers, longTTL))
	first := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	for _, r := range servers[:2] {
		r.Pause()
	}
	startMigration(t, s.Address(), "fast/", engine.Correctness, true)
	awaitMigration(t, s.Address(), "fast/", "1 of 3 Redis nodes have the new version, 2 are needed")
	for _, r := range servers[:2] {
		r.Resume()
	}
	awaitMode(t, s.Address(), "fast/", engine.Correctness)
	next := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Greater(t, next["token"], first["token"])
}

// saveSnapshot returns a snapshot of the service.
func saveSnapshot(t testing.TB, address string) io.Reader {
	t.Helper()
	response, err := http.Post("http://"+address+"/v1/save-snapshot", "application/json", nil)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return response.Body
}

// restoreSnapshot restores a snapshot.
func restoreSnapshot(t testing.TB, address string, file io.Reader) {
	t.Helper()
	response, err := http.Post("http://"+address+"/v1/restore-snapshot", "application/octet-stream", file)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// A snapshot from before a migration is restored after it. The next token is above
// that of the grant that the log has forgotten.
func TestRestoreAfterMigration(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	a := s.Address()
	mustPost(t, a, "/v1/release", leaseName(mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)))
	snapshot := saveSnapshot(t, a)
	setMode(t, a, "fast/", engine.Correctness)
	forgotten := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "correctness", forgotten["mode"])
	restoreSnapshot(t, a, snapshot)
	awaitMode(t, a, "fast/", engine.Efficiency)
	next := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "efficiency", next["mode"])
	require.Greater(t, next["token"], forgotten["token"])
	setMode(t, a, "fast/", engine.Correctness)
	last := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Greater(t, last["token"], next["token"])
}

// A lease whose lock is in correctness mode by now is lost. The error is not that of
// an acquire in the wrong mode.
func TestLeaseIsLostByMigration(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	stream := openStream(t, s.Address(), engine.NewSessionID())
	acquire := &pb.AcquireCall{Nonce: 1, Resources: []string{"fast/a"}, TtlNanos: int64(longTTL)}
	answer, code := stream.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Empty(t, code)
	setMode(t, s.Address(), "fast/", engine.Correctness)
	held := &pb.HeldLease{Nonce: 1, Name: answer.Name, Resources: acquire.Resources, Token: answer.Token,
		TtlNanos: int64(longTTL)}
	answer, code = stream.do(&pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}})
	require.Empty(t, code)
	require.Len(t, answer.Lost, 1)
	require.Equal(t, "taken", answer.Lost[0].Lost.Code)
	acquire.Nonce = 2
	_, code = stream.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Equal(t, "mode-mismatch", code)
}

// A process with a topology from before a migration to correctness mode is granted
// nothing and can renew nothing, although one node still accepts its version.
func TestStaleProcessIsRejected(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	fleet := fleetOf(servers, longTTL)
	s := startOnFleet(t, fleet)
	stale := engine.Topology{Version: uint64(mustPost(t, s.Address(), "/v1/get-fleet", `{}`)["version"].(float64)),
		Fleet: fleet, Ready: true}
	stale.Policies, _ = engine.NewPolicies(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency})
	config := redlockConfig(fleet)
	config.Topology = func() engine.Topology { return engine.Topology{} }
	looking, err := redlockadapter.New(testContext(t), config)
	require.NoError(t, err)
	for _, n := range looking.NodeStatuses(testContext(t)) {
		stale.Lives = append(stale.Lives, n.Report.Life())
	}
	require.NoError(t, looking.Close(testContext(t)))
	config.Topology = func() engine.Topology { return stale }
	late, err := redlockadapter.New(testContext(t), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, late.Close(testContext(t))) })
	request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"fast/a"}}
	held, err := late.Acquire(testContext(t), engine.NewSessionID(), longTTL, request)
	require.NoError(t, err)

	servers[2].Pause() // this node does not get the new version
	setMode(t, s.Address(), "fast/", engine.Correctness)
	servers[2].Resume()
	rejected := func(what string, try func() error) { // a busy machine may not reach the nodes in time
		eventually(t, what+" is rejected", func() bool {
			err := try()
			require.Error(t, err, what)
			return errors.Is(err, engine.ErrVersion)
		})
	}
	rejected("a renewal", func() error { return late.Renew(testContext(t), []engine.Held{held})[0] })
	request.Resources = []fencing.Resource{"fast/b"}
	rejected("an acquire", func() error {
		request.Nonce++
		_, err := late.Acquire(testContext(t), engine.NewSessionID(), longTTL, request)
		return err
	})
	next := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "correctness", next["mode"])
	require.Greater(t, next["token"], float64(held.Token))
}

// Only the leader serves a call in a session while its lock migrates: it knows whether an earlier copy of the call was
// granted, and it can keep the session.
func TestSessionCallInAMigrationGoesToTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, fleetOf(startRedis(t, 1), time.Minute))
	leader := c.awaitLeader()
	open := func(at *member, ttl string) string {
		return mustPost(t, at.spec.API, "/v1/open-session", fmt.Sprintf(`{"ttl":%q}`, ttl))["sessionId"].(string)
	}
	holder := open(leader, "10m")
	held := mustPost(t, leader.spec.API, "/v1/acquire",
		fmt.Sprintf(`{"resource":"moves/a","sessionId":%q,"nonce":1}`, holder))
	startMigration(t, leader.spec.API, "moves/", engine.Efficiency, false)

	next := c.follower()
	conn := dial(t, next.spec.API)
	topologies, err := pb.NewPolicyServiceClient(conn).WatchTopology(t.Context(), &pb.WatchTopologyRequest{})
	require.NoError(t, err)
	for migrating := error(nil); migrating == nil; {
		got, err := topologies.Recv()
		require.NoError(t, err)
		topology, err := wire.ToTopology(got)
		require.NoError(t, err)
		_, migrating = topology.ModeOf("moves/a")
	}
	_, err = pb.NewLeaseServiceClient(conn).Acquire(t.Context(), &pb.AcquireRequest{Resource: "moves/a",
		SessionId: holder, Nonce: 1, Wait: "5s"})
	require.ErrorIs(t, wire.FromStatus(err), wire.ErrNotLeader)

	waiting := postAsync(t, leader.spec.API, "/v1/acquire",
		fmt.Sprintf(`{"resource":"moves/a","sessionId":%q,"nonce":1,"wait":"5m"}`, open(leader, "10s")))
	mustPost(t, leader.spec.API, "/v1/renew", leaseName(held))
	eventually(t, "the transfer", func() bool {
		code, _ := post(t, leader.spec.API, "/v1/transfer", `{"to":"`+next.spec.ID+`"}`)
		return code == http.StatusOK || c.leader() == next
	})
	eventually(t, "the other member leads", func() bool { return c.leader() == next })
	mustPost(t, next.spec.API, "/v1/acquire", `{"resource":"b","ttl":"15s"}`)
	eventually(t, "a session without calls would have expired", func() bool {
		lock := mustPost(t, next.spec.API, "/v1/inspect", `{"resource":"b"}`)["lock"].(map[string]any)
		return len(lock["holders"].([]any)) == 0
	})
	mustPost(t, next.spec.API, "/v1/abort-migration", `{"prefix":"moves/"}`)
	mustPost(t, next.spec.API, "/v1/release", leaseName(held))
	require.Greater(t, (<-waiting)["token"], held["token"])
}
