package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/engine"
)

// moveOf returns the move of a prefix, nil if there is none.
func moveOf(t testing.TB, address, prefix string) map[string]any {
	t.Helper()
	moves, _ := mustPost(t, address, "/v1/list-policies", `{}`)["migrations"].([]any)
	for _, m := range moves {
		if m := m.(map[string]any); m["prefix"] == prefix {
			return m
		}
	}
	return nil
}

// awaitMove returns when the move of a prefix waits for something.
func awaitMove(t testing.TB, address, prefix, waitingFor string) {
	t.Helper()
	eventually(t, "the move waits for "+waitingFor, func() bool {
		text, _ := moveOf(t, address, prefix)["waitingFor"].(string)
		return strings.Contains(text, waitingFor)
	})
}

// TestMoves: a lock changes its mode, there and back, and its tokens grow all the
// way. It is not granted while it moves, and its lease is lost with the reason.
func TestMoves(t *testing.T) {
	const maxTTL = 10 * time.Second // the move to correctness mode waits for it
	s := startOn(t, fleetOf(startRedis(t, 3), maxTTL))
	a := s.Address()
	last := 0.0
	acquire := func(mode engine.Mode) map[string]any {
		l := mustPost(t, a, "/v1/acquire", `{"resource":"moves/a","ttl":"10s"}`)
		require.Equal(t, mode.String(), l["mode"])
		require.Greater(t, l["token"], last)
		last = l["token"].(float64)
		return l
	}
	refused := func() {
		code, answer := post(t, a, "/v1/acquire", `{"resource":"moves/a"}`)
		require.Equal(t, http.StatusServiceUnavailable, code, answer)
		require.Contains(t, answer["message"], "is moving from")
	}
	held := acquire(engine.Correctness)
	beginMove(t, a, "moves/", engine.Efficiency, false)
	awaitMove(t, a, "moves/", "1 holder to release")
	refused()
	mustPost(t, a, "/v1/renew", named(held))
	mustPost(t, a, "/v1/release", named(held))
	awaitMode(t, a, "moves/", engine.Efficiency)

	held = acquire(engine.Efficiency)
	beginMove(t, a, "moves/", engine.Correctness, false)
	awaitMove(t, a, "moves/", "leases of the efficiency mode to end")
	refused()
	code, answer := post(t, a, "/v1/renew", named(held))
	require.Equal(t, http.StatusGone, code, answer)
	require.Equal(t, "taken", answer["code"])
	require.Contains(t, answer["message"], "is moving from efficiency to correctness")
	code, answer = post(t, a, "/v1/set-policy", `{"policy":{"prefix":"moves/","mode":"efficiency"}}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "abort it first")
	waited := mustPost(t, a, "/v1/acquire", `{"resource":"moves/a","wait":"1m"}`)
	require.Equal(t, "correctness", waited["mode"], "a request that waits goes on by itself")
	require.Greater(t, waited["token"], last)
	require.Nil(t, moveOf(t, a, "moves/"))
}

// TestAbort: an aborted move leaves the locks as they were.
func TestAbort(t *testing.T) {
	s := startBoth(t)
	a := s.Address()
	first := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"10s"}`)
	beginMove(t, a, "fast/", engine.Correctness, false)
	awaitMove(t, a, "fast/", "leases of the efficiency mode to end, ")
	waiting := make(chan map[string]any, 1)
	go func() {
		_, l := post(t, a, "/v1/acquire", `{"resource":"fast/b","wait":"1m"}`)
		waiting <- l
	}()
	mustPost(t, a, "/v1/abort-migration", `{"prefix":"fast/"}`)
	require.Nil(t, moveOf(t, a, "fast/"))
	require.Equal(t, "efficiency", (<-waiting)["mode"])
	require.Equal(t, true, mustPost(t, a, "/v1/release", named(first))["released"], "the lease lived on")
	next := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "efficiency", next["mode"])
	require.Greater(t, next["token"], first["token"])
}

// TestWaitersFollowAMove: waiters in either mode are served in the other one.
func TestWaitersFollowAMove(t *testing.T) {
	s := startBoth(t)
	a := s.Address()
	for _, to := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		held := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"10s"}`) // Redis has it until then
		waiting := make(chan map[string]any, 1)
		go func() {
			_, l := post(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"10s","holder":"ben","wait":"1m"}`)
			waiting <- l
		}()
		eventually(t, "it waits", func() bool {
			return strings.Contains(fmt.Sprint(mustPost(t, a, "/v1/inspect", `{"resource":"fast/a"}`)), "holder:ben")
		})
		setMode(t, a, "fast/", to)
		next := <-waiting
		require.Equal(t, to.String(), next["mode"], next)
		require.Greater(t, next["token"], held["token"])
		mustPost(t, a, "/v1/release", named(next))
	}
}

// TestPolicyBeforeRedis: an efficiency policy that is set before the Redis nodes
// run is in effect soon after they do, without an operator.
func TestPolicyBeforeRedis(t *testing.T) {
	servers := startRedis(t, 3)
	for _, r := range servers {
		r.Stop()
	}
	s := startOne(t, func(c *server.Config) { c.Redis = fleetOf(servers, longTTL) })
	beginMove(t, s.Address(), "fast/", engine.Efficiency, false)
	awaitMove(t, s.Address(), "fast/", "0 of 3 Redis nodes have reported how far tokens had come, 2 are needed")
	code, answer := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	for _, r := range servers {
		require.NoError(t, r.Start())
	}
	awaitMode(t, s.Address(), "fast/", engine.Efficiency)
	require.Equal(t, "efficiency", mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)["mode"])
}

// TestMoveSurvivesItsLeader: the next leader completes a move.
func TestMoveSurvivesItsLeader(t *testing.T) {
	c := startClusterOn(t, 3, fleetOf(startRedis(t, 3), 10*time.Second))
	first := mustPost(t, c.leader().spec.API, "/v1/acquire", `{"resource":"fast/a","ttl":"10s"}`)
	beginMove(t, c.leader().spec.API, "fast/", engine.Correctness, false)
	require.Equal(t, 1, c.killLeader(nil))
	var next map[string]any
	eventually(t, "the lock is in correctness mode", func() bool {
		leader := c.leader()
		if leader == nil {
			return false
		}
		var code int
		code, next = post(t, leader.spec.API, "/v1/acquire", `{"resource":"fast/a"}`)
		return code == http.StatusOK && next["mode"] == "correctness"
	})
	require.Greater(t, next["token"], first["token"])
}

// TestMoveNeedsAQuorum: while fewer than a quorum of the nodes can be told of a
// move to correctness mode, it does not complete, also with now.
func TestMoveNeedsAQuorum(t *testing.T) {
	servers := startRedis(t, 3)
	s := startOn(t, fleetOf(servers, longTTL))
	first := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	for _, r := range servers[:2] {
		r.Pause()
	}
	beginMove(t, s.Address(), "fast/", engine.Correctness, true)
	awaitMove(t, s.Address(), "fast/", "1 of 3 Redis nodes have the new version, 2 are needed")
	for _, r := range servers[:2] {
		r.Resume()
	}
	awaitMode(t, s.Address(), "fast/", engine.Correctness)
	next := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Greater(t, next["token"], first["token"])
}

// TestRestoreAfterAMove: a snapshot of before a move is restored after it; the next
// token is larger than that of the grant that the log has forgotten.
func TestRestoreAfterAMove(t *testing.T) {
	s := startBoth(t)
	a := s.Address()
	mustPost(t, a, "/v1/release", named(mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)))
	response, err := http.Post("http://"+a+"/v1/save-snapshot", "application/json", nil)
	require.NoError(t, err)
	defer response.Body.Close()
	setMode(t, a, "fast/", engine.Correctness)
	forgotten := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "correctness", forgotten["mode"])
	restored, err := http.Post("http://"+a+"/v1/restore-snapshot", "application/octet-stream", response.Body)
	require.NoError(t, err)
	defer restored.Body.Close()
	require.Equal(t, http.StatusOK, restored.StatusCode)
	awaitMode(t, a, "fast/", engine.Efficiency)
	next := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "efficiency", next["mode"])
	require.Greater(t, next["token"], forgotten["token"])
	setMode(t, a, "fast/", engine.Correctness)
	last := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Greater(t, last["token"], next["token"])
}

// TestLostByAMove: a lease whose lock is in correctness mode by now is lost, and
// not refused as one with another mode.
func TestLostByAMove(t *testing.T) {
	s := startBoth(t)
	stream := openStream(t, s.Address(), engine.NewSessionID())
	acquire := &pb.AcquireCall{Nonce: 1, Resources: []string{"fast/a"}, TtlNanos: int64(longTTL)}
	answer, code := stream.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Empty(t, code)
	setMode(t, s.Address(), "fast/", engine.Correctness)
	held := &pb.HeldLease{Nonce: 1, Name: answer.Name, Resources: acquire.Resources, Token: answer.Token, TtlNanos: int64(longTTL)}
	answer, code = stream.do(&pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}})
	require.Empty(t, code)
	require.Len(t, answer.Lost, 1)
	require.Equal(t, "taken", answer.Lost[0].Lost.Code)
	acquire.Nonce = 2
	_, code = stream.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Equal(t, "mode-mismatch", code)
}
