package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// shortTTL is the longest TTL of the fleet in tests that wait for the quarantine of
// an empty node.
const shortTTL = time.Second

// startWithShortTTL starts a server on Redis nodes with a short quarantine.
func startWithShortTTL(t testing.TB, servers []*testserver.RedisServer) *server.Server {
	t.Helper()
	s := startServer(t, func(c *server.Config) { c.Redis = fleetOf(servers, shortTTL) })
	mustPost(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"efficiency","ttl":"1s"}}`)
	awaitMode(t, s.Address(), "fast/", engine.Efficiency)
	return s
}

// empty restarts a Redis server without its data.
func empty(t testing.TB, r *testserver.RedisServer) {
	if err := r.Wipe(); err != nil {
		t.Error(err)
	}
	if err := r.Start(); err != nil {
		t.Error(err)
	}
}

// All Redis nodes lose their data at once, repeatedly. The mode recovers without an
// operator, with larger tokens.
func TestAllNodesEmptied(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 5)
	s := startWithShortTTL(t, servers)
	last := acquired(t, s.Address(), `{"resource":"fast/a"}`, 0.0)
	for range 3 {
		var work sync.WaitGroup
		for _, r := range servers {
			work.Go(func() { empty(t, r) })
		}
		work.Wait()
		last = acquired(t, s.Address(), `{"resource":"fast/a"}`, last["token"])
	}
}

// A node that lost its data is recovered while the others serve, and votes with a new
// range of tokens.
func TestOneNodeEmptied(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	s := startWithShortTTL(t, servers)
	empty(t, servers[0])
	first := acquired(t, s.Address(), `{"resource":"fast/a"}`, 0.0)
	eventually(t, "the node votes again", func() bool {
		for _, n := range mustPost(t, s.Address(), "/v1/get-fleet", `{}`)["nodes"].([]any) {
			if n := n.(map[string]any); n["empty"] == true || n["error"] != nil {
				return false
			}
		}
		return true
	})
	servers[1].Pause() // the vote of the recovered node is needed now
	defer servers[1].Resume()
	acquired(t, s.Address(), `{"resource":"fast/a"}`, first["token"])
}

// Other Redis nodes take over with larger tokens, and the old ones grant nothing.
func TestFleetChange(t *testing.T) {
	t.Parallel()
	old, other := startRedis(t, 3), startRedis(t, 3)
	s := startOnFleet(t, fleetOf(old, longTTL))
	a := s.Address()
	setFleet := func(servers []*testserver.RedisServer, flags string) {
		t.Helper()
		addresses := strings.Join(fleetOf(servers, longTTL).Addresses, `","`)
		mustPost(t, a, "/v1/set-fleet", fmt.Sprintf(`{"fleet":{"namespace":"test","maxTtl":"1m","addresses":["%s"]}%s}`,
			addresses, flags))
	}
	const lock = `{"resource":"fast/a","ttl":"20s"}`
	last := mustPost(t, a, "/v1/acquire", lock)
	setFleet(other, "")
	eventually(t, "the change waits for the leases of the old fleet", func() bool {
		fleet := mustPost(t, a, "/v1/get-fleet", `{}`)
		return strings.HasPrefix(fmt.Sprint(fleet["waitingFor"]), "leases of the old fleet to end, ") &&
			fleet["next"] != nil && fleet["ready"] != true
	})
	code, answer := post(t, a, "/v1/renew", leaseName(last))
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	setFleet(other, `,"now":true`)
	last = acquired(t, a, lock, last["token"])
	require.Equal(t, true, mustPost(t, a, "/v1/release", leaseName(last))["released"])

	for _, r := range other { // the fleet is lost
		r.Kill()
	}
	setFleet(old, `,"now":true`)
	eventually(t, "the change waits for the lost fleet", func() bool {
		return mustPost(t, a, "/v1/get-fleet",
			`{}`)["waitingFor"] == "the old fleet: 0 of 3 Redis nodes have the new version, 2 are needed"
	})
	setFleet(old, `,"now":true,"force":true`)
	acquired(t, a, lock, last["token"])
}

// After a restore with empty Redis nodes, a floor that an operator provides makes the
// mode serve again.
func TestProvideFloor(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	s := startWithShortTTL(t, servers)
	a := s.Address()
	last := acquired(t, a, `{"resource":"fast/a"}`, 0.0)
	snapshot := saveSnapshot(t, a)
	for _, r := range servers {
		require.NoError(t, r.Wipe()) // and start it later: the leader must not recover it before the restore
	}
	code, answer := post(t, a, "/v1/provide-floor", `{"floor":1}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	restoreSnapshot(t, a, snapshot)
	status, ready := get(t, "http://"+a+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status, "locks are granted in neither mode")
	require.Contains(t, ready, "has not caught up with the Redis nodes")
	code, answer = post(t, a, "/v1/acquire", `{"resource":"a"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	for _, r := range servers {
		require.NoError(t, r.Start())
	}
	var fleet map[string]any
	eventually(t, "the service waits for reports", func() bool {
		fleet = mustPost(t, a, "/v1/get-fleet", `{}`)
		return fleet["waitingFor"] == "0 of 3 Redis nodes have reported their tokens, 2 are needed; "+
			"if the others are lost, provide a floor with 'leased redis init --floor'"
	})
	mustPost(t, a, "/v1/provide-floor", fmt.Sprintf(`{"floor":%.0f}`, fleet["proposedFloor"]))
	awaitMode(t, a, "fast/", engine.Efficiency)
	next := acquired(t, a, `{"resource":"fast/a"}`, fleet["proposedFloor"])
	require.Greater(t, next["token"], last["token"])
	eventually(t, "the member is ready", func() bool {
		status, _ := get(t, "http://"+a+"/readyz")
		return status == http.StatusOK
	})
}
