package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// startClusterOn starts members on a fleet, with "fast/" in efficiency mode, and
// returns when all members have applied that.
func startClusterOn(t testing.TB, size int, fleet engine.Fleet) *cluster {
	t.Helper()
	c := startCluster(t, size, fleet)
	setMode(t, c.leader().spec.API, "fast/", engine.Efficiency)
	c.awaitApplied("fast/", engine.Efficiency)
	return c
}

// awaitApplied returns when every member that runs serves a prefix in a mode.
func (c *cluster) awaitApplied(prefix string, mode engine.Mode) {
	c.t.Helper()
	for _, m := range c.members {
		if m.status() == nil {
			continue
		}
		eventually(c.t, m.spec.ID+" has applied the policy", func() bool {
			code, l := post(c.t, m.spec.API, "/v1/acquire", fmt.Sprintf(`{"resource":"%sapplied","mode":%q}`, prefix, mode))
			if code != http.StatusOK {
				return l["code"] == "held"
			}
			mustPost(c.t, m.spec.API, "/v1/release", named(l))
			return true
		})
	}
}

// TestAnyMember: what one member grants, another one shows, renews, breaks and
// releases. A set is renewed as a whole.
func TestAnyMember(t *testing.T) {
	c := startClusterOn(t, 3, fleetOf(startRedis(t, 3), longTTL))
	follower := c.follower().spec.API
	for _, granter := range c.members {
		for _, other := range c.members {
			t.Run(granter.spec.ID+" grants, "+other.spec.ID+" goes on", func(t *testing.T) { passOn(t, granter.spec.API, other.spec.API) })
		}
	}
	t.Run("over gRPC", func(t *testing.T) {
		granted, err := pb.NewLeaseServiceClient(dial(t, follower)).Acquire(patient(t), &pb.AcquireRequest{Resource: "fast/grpc"})
		require.NoError(t, err, "a follower is not asked to forward")
		released, err := pb.NewLeaseServiceClient(dial(t, c.leader().spec.API)).Release(patient(t), &pb.ReleaseRequest{Resource: "fast/grpc", Token: granted.Token})
		require.NoError(t, err)
		require.True(t, released.Released)
	})
	t.Run("a grant whose answer was lost", func(t *testing.T) { answerLost(t, c.members[0].spec.API, c.members[1].spec.API) })
	t.Run("a stream", func(t *testing.T) { streamAt(t, follower) })
	t.Run("a list of both modes", func(t *testing.T) {
		slow := mustPost(t, follower, "/v1/acquire", `{"resource":"a-slow-one","ttl":"1m"}`)
		fast := mustPost(t, follower, "/v1/acquire", `{"resource":"fast/listed","ttl":"1m"}`)
		page := mustPost(t, follower, "/v1/list", `{"pageSize":1}`)
		require.Contains(t, fmt.Sprint(page["locks"]), "a-slow-one")
		page = mustPost(t, follower, "/v1/list", fmt.Sprintf(`{"pageToken":%q}`, page["nextPageToken"]))
		require.Contains(t, fmt.Sprint(page["locks"]), "fast/listed")
		require.Nil(t, page["nextPageToken"])
		require.NotContains(t, fmt.Sprint(mustPost(t, follower, "/v1/list", `{"mode":"efficiency"}`)), "a-slow-one")
		require.NotContains(t, fmt.Sprint(mustPost(t, follower, "/v1/list", `{"mode":"correctness"}`)), "fast/listed")
		mustPost(t, follower, "/v1/release", named(slow))
		mustPost(t, follower, "/v1/release", named(fast))
	})
}

// passOn acquires a set at one member and goes on at another.
func passOn(t *testing.T, granter, other string) {
	set := mustPost(t, granter, "/v1/acquire", `{"resources":["fast/x","fast/y"],"ttl":"1m","holder":"ann","metadata":{"k":"v"}}`)
	for _, name := range []string{"fast/x", "fast/y"} {
		inspected := fmt.Sprint(mustPost(t, other, "/v1/inspect", fmt.Sprintf(`{"resource":%q}`, name)))
		require.Contains(t, inspected, "holder:ann")
		require.Contains(t, inspected, "k:v")
		renewed := mustPost(t, other, "/v1/renew", fmt.Sprintf(`{"resource":%q,"token":%.0f}`, name, set["token"]))
		require.Equal(t, []any{set["token"]}, renewed["tokens"])
		require.Equal(t, "1m0s", renewed["ttl"])
		code, refused := post(t, granter, "/v1/acquire", fmt.Sprintf(`{"resource":%q}`, name))
		require.Equal(t, http.StatusConflict, code, refused)
	}
	code, answer := post(t, other, "/v1/renew", fmt.Sprintf(`{"resource":"fast/x","token":%.0f}`, set["token"].(float64)+1))
	require.Equal(t, http.StatusNotFound, code, "a lease that nobody was granted is not renewed: %v", answer)
	listed := fmt.Sprint(mustPost(t, other, "/v1/list", `{"mode":"efficiency","prefix":"fast/"}`))
	require.Contains(t, listed, "fast/x")
	require.Contains(t, listed, "fast/y")
	require.Equal(t, true, mustPost(t, other, "/v1/release", named(set))["released"])

	next := mustPost(t, granter, "/v1/acquire", `{"resource":"fast/y","ttl":"1m"}`)
	require.Greater(t, next["token"], set["token"])
	mustPost(t, other, "/v1/break", named(next))
	code, answer = post(t, granter, "/v1/renew", named(next))
	require.Equal(t, http.StatusNotFound, code, answer)
}

// streamAt acquires, renews and releases on a stream at a member.
func streamAt(t *testing.T, address string) {
	session, err := client(t, []string{address}).Efficiency().Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: longTTL})
	require.NoError(t, err)
	var last fencing.Token
	for nonce := engine.Nonce(1); nonce <= 3; nonce++ {
		grant, err := session.Acquire(patient(t), engine.Request{Nonce: nonce, Resources: []fencing.Resource{"fast/stream"}})
		require.NoError(t, err)
		require.True(t, grant.Token.Newer(last))
		last = grant.Token
		failed, err := session.Renew(patient(t))
		require.NoError(t, err)
		require.Empty(t, failed)
		require.NoError(t, session.Release(patient(t), nonce))
	}
}

// answerLost: a client that has not heard of its grant ends the attempt at another
// member, which has to find the lease. A lease with too long a TTL is not renewed.
func answerLost(t *testing.T, granter, other string) {
	id := engine.NewSessionID()
	first, second := openStream(t, granter, id), openStream(t, other, id)
	acquire := &pb.AcquireCall{Nonce: 7, Resources: []string{"fast/lost"}, TtlNanos: int64(longTTL)}
	answer, code := first.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Empty(t, code)
	held := &pb.HeldLease{Nonce: 7, Name: answer.Name, Resources: acquire.Resources, Token: answer.Token, TtlNanos: int64(2 * longTTL)}
	_, code = second.do(&pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}})
	require.Equal(t, "invalid", code)
	unknown := &pb.HeldLease{Nonce: 7, Resources: acquire.Resources, TtlNanos: int64(longTTL)}
	_, code = second.do(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 6, Lease: unknown}}})
	require.Empty(t, code)
	require.Contains(t, fmt.Sprint(mustPost(t, other, "/v1/inspect", `{"resource":"fast/lost"}`)), "holders", "it is another attempt's")
	_, code = second.do(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7, Lease: unknown}}})
	require.Empty(t, code)
	require.NotContains(t, fmt.Sprint(mustPost(t, granter, "/v1/inspect", `{"resource":"fast/lost"}`)), "holders")
}

// TestWithoutALeader: with two of three members dead the last one serves the
// efficiency mode, and says that it serves nothing else.
func TestWithoutALeader(t *testing.T) {
	c := startClusterOn(t, 3, fleetOf(startRedis(t, 3), longTTL))
	before := mustPost(t, c.leader().spec.API, "/v1/acquire", `{"resource":"fast/kept","ttl":"1m"}`)
	last := c.members[2]
	c.members[0].kill()
	c.members[1].kill()
	eventually(t, "it knows no leader", func() bool { return last.status()["leader"] == nil && last.status()["serves"] != true })
	address := last.spec.API
	require.Equal(t, []any{before["token"]}, mustPost(t, address, "/v1/renew", named(before))["tokens"])
	passOn(t, address, address)
	streamAt(t, address)
	require.Contains(t, fmt.Sprint(mustPost(t, address, "/v1/list", `{"mode":"efficiency"}`)), "fast/kept")
	prefix := "fast/"
	require.Equal(t, "granted", events(t, address, &pb.WatchRequest{Prefix: &prefix})().Type)
	fleet := mustPost(t, address, "/v1/get-fleet", `{}`)
	require.Equal(t, true, fleet["ready"])
	require.Len(t, fleet["nodes"], 3)
	topology, err := pb.NewPolicyServiceClient(dial(t, address)).WatchTopology(patient(t), &pb.WatchTopologyRequest{})
	require.NoError(t, err)
	first, err := topology.Recv()
	require.NoError(t, err)
	require.True(t, first.Ready)
	require.Len(t, first.Policies, 1)

	code, answer := post(t, address, "/v1/acquire", `{"resource":"slow"}`)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not-leader", answer["code"])
	health := mustPost(t, address, "/v1/health", `{}`)
	require.Equal(t, "serving", health["status"])
	require.Contains(t, health["reason"], "locks in efficiency mode only")
}

// TestEfficiencyIsWatched: a watch at one member hears of what others do, with the
// waiters and how each lease ended.
func TestEfficiencyIsWatched(t *testing.T) {
	c := startClusterOn(t, 3, fleetOf(startRedis(t, 3), longTTL))
	prefix, address, other := "fast/w", c.members[0].spec.API, c.members[1].spec.API
	for name, watch := range map[string]struct {
		request *pb.WatchRequest
		at      string
	}{
		"a lock at a follower":   {&pb.WatchRequest{Resource: "fast/w"}, c.follower().spec.API},
		"a prefix at a follower": {&pb.WatchRequest{Prefix: &prefix}, c.follower().spec.API},
		"a prefix at the leader": {&pb.WatchRequest{Prefix: new(string)}, c.leader().spec.API},
	} {
		t.Run(name, func(t *testing.T) {
			next := events(t, watch.at, watch.request)
			until := func(holder string, kinds ...string) *pb.Event {
				for {
					e := next()
					if slices.Contains(kinds, e.Type) && e.GetParty().GetHolder() == holder {
						return e
					}
				}
			}
			until("", "synced")
			first := mustPost(t, address, "/v1/acquire", `{"resource":"fast/w","ttl":"1m","holder":"ann"}`)
			e := until("ann", "granted")
			require.Equal(t, []any{"fast/w", "efficiency", first["token"]}, []any{e.Resource, e.Mode, float64(e.Party.Token)})
			waiting := make(chan map[string]any, 1)
			go func() {
				_, second := post(t, other, "/v1/acquire", `{"resource":"fast/w","ttl":"1m","holder":"ben","wait":"1m"}`)
				waiting <- second
			}()
			until("ben", "waiting")
			mustPost(t, address, "/v1/release", named(first))
			until("ann", "released", "ended") // a waiter's retries make the nodes forget the reason
			second := <-waiting
			until("ben", "granted")
			mustPost(t, address, "/v1/break", named(second))
			until("ben", "broken")
			third := mustPost(t, address, "/v1/acquire", `{"resource":"fast/w","ttl":"1m","holder":"dan"}`)
			until("dan", "granted")
			mustPost(t, address, "/v1/release", named(third))
			until("dan", "released")
			mustPost(t, address, "/v1/acquire", `{"resource":"fast/w","ttl":"2s","holder":"cat"}`)
			until("cat", "granted")
			until("cat", "expired")
		})
	}
}

// TestAStaleMemberIsRefused: a process that has not heard of a move to correctness
// mode is granted nothing, and what single nodes accept from it is below every
// later token.
func TestAStaleMemberIsRefused(t *testing.T) {
	servers := startRedis(t, 3)
	fleet := fleetOf(servers, longTTL)
	s := startOn(t, fleet)
	stale := engine.Topology{Version: uint64(mustPost(t, s.Address(), "/v1/get-fleet", `{}`)["version"].(float64)), Fleet: fleet, Ready: true}
	stale.Policies, _ = engine.NewPolicies(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency})
	config := redlockConfig(fleet)
	config.Topology = func() engine.Topology { return stale }
	late, err := redlockadapter.New(patient(t), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, late.Close(patient(t))) })
	request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"fast/a"}}
	held, grant, err := late.Acquire(patient(t), engine.NewSessionID(), longTTL, request)
	require.NoError(t, err)

	servers[2].Pause() // it hears of nothing
	setMode(t, s.Address(), "fast/", engine.Correctness)
	servers[2].Resume()
	require.ErrorIs(t, late.Renew(patient(t), []engine.Held{held})[0], redlockadapter.ErrVersion)
	request.Nonce, request.Resources = 2, []fencing.Resource{"fast/b"}
	_, _, err = late.Acquire(patient(t), engine.NewSessionID(), longTTL, request)
	require.ErrorIs(t, err, redlockadapter.ErrVersion)
	next := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "correctness", next["mode"])
	require.Greater(t, next["token"], float64(grant.Token))
	eventually(t, "all nodes answer, and none has accepted a token of the Raft machine", func() bool {
		for _, n := range late.NodeStatuses(patient(t)) {
			if n.Err != nil {
				return false
			}
			require.Greater(t, next["token"], float64(n.Report.Live.Max))
		}
		return true
	})
}

// TestReleasedElsewhere: a waiter at the member that granted a lease is served
// when the lease is released, or broken, through another member.
func TestReleasedElsewhere(t *testing.T) {
	c := startClusterOn(t, 3, fleetOf(startRedis(t, 3), longTTL))
	granter, other := c.members[0].spec.API, c.members[1].spec.API
	for _, end := range []string{"/v1/release", "/v1/break"} {
		t.Run(end, func(t *testing.T) {
			held := mustPost(t, granter, "/v1/acquire", `{"resource":"fast/e","ttl":"1m"}`)
			waiting := make(chan map[string]any, 1)
			go func() {
				_, next := post(t, granter, "/v1/acquire", `{"resource":"fast/e","ttl":"1m","holder":"ben","wait":"30s"}`)
				waiting <- next
			}()
			eventually(t, "the other member sees the waiter", func() bool {
				return strings.Contains(fmt.Sprint(mustPost(t, other, "/v1/inspect", `{"resource":"fast/e"}`)), "holder:ben")
			})
			mustPost(t, other, end, named(held))
			next := <-waiting
			require.Greater(t, next["token"], held["token"], next)
			mustPost(t, other, "/v1/release", named(next))
		})
	}
}
