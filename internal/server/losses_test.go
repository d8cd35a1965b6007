package server_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// quarantine is a short longest TTL, for tests that wait until an emptied node may
// vote again.
const quarantine = time.Second

// startShort starts a server on servers with a short quarantine.
func startShort(t testing.TB, servers []*testserver.RedisServer) *server.Server {
	t.Helper()
	s := startOne(t, func(c *server.Config) { c.Redis = fleetOf(servers, quarantine) })
	mustPost(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"efficiency","ttl":"1s"}}`)
	awaitMode(t, s.Address(), "fast/", engine.Efficiency)
	return s
}

// TestAllEmptied: all Redis nodes lose everything at once, again and again. The
// mode comes back by itself, with larger tokens.
func TestAllEmptied(t *testing.T) {
	servers := startRedis(t, 5)
	s := startShort(t, servers)
	last := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)["token"].(float64)
	for range 3 {
		var work sync.WaitGroup
		for _, r := range servers {
			work.Go(func() {
				if err := r.Wipe(); err != nil {
					t.Error(err)
				}
				if err := r.Start(); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		eventually(t, "it is granted again", func() bool {
			code, l := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
			if code != http.StatusOK {
				return false
			}
			require.Greater(t, l["token"], last)
			last = l["token"].(float64)
			return true
		})
	}
}

// TestOneEmptied: a lost node is recovered while the others serve, and votes with
// its new range.
func TestOneEmptied(t *testing.T) {
	servers := startRedis(t, 3)
	s := startShort(t, servers)
	require.NoError(t, servers[0].Wipe())
	require.NoError(t, servers[0].Start())
	first := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	eventually(t, "it votes again", func() bool {
		for _, n := range mustPost(t, s.Address(), "/v1/get-fleet", `{}`)["nodes"].([]any) {
			if n := n.(map[string]any); n["empty"] != nil || n["error"] != nil {
				return false
			}
		}
		return true
	})
	servers[1].Pause() // its vote is needed now
	defer servers[1].Resume()
	var next map[string]any
	eventually(t, "it is granted with its vote", func() bool {
		var code int
		code, next = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
		return code == http.StatusOK
	})
	require.Greater(t, next["token"], first["token"])
}

// TestFleetChange: other Redis nodes take over, with larger tokens, and the old
// ones grant nothing any more.
func TestFleetChange(t *testing.T) {
	old, other := startRedis(t, 3), startRedis(t, 3)
	s := startOn(t, fleetOf(old, longTTL))
	a := s.Address()
	setFleet := func(servers []*testserver.RedisServer, flags string) {
		t.Helper()
		fleet, addresses := fleetOf(servers, longTTL), ""
		for i, address := range fleet.Addresses {
			if i > 0 {
				addresses += ","
			}
			addresses += fmt.Sprintf("%q", address)
		}
		mustPost(t, a, "/v1/set-fleet", fmt.Sprintf(`{"fleet":{"namespace":"test","maxTtl":"1m","addresses":[%s]}%s}`, addresses, flags))
	}
	last := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"10s"}`)
	granted := func() {
		t.Helper()
		eventually(t, "the fleet has changed", func() bool {
			code, l := post(t, a, "/v1/acquire", `{"resource":"fast/a","ttl":"10s"}`)
			if code != http.StatusOK {
				return false
			}
			require.Greater(t, l["token"], last["token"])
			last = l
			return true
		})
	}
	setFleet(other, "")
	eventually(t, "it waits for the leases of the old fleet", func() bool {
		fleet := mustPost(t, a, "/v1/get-fleet", `{}`)
		return fleet["waitingFor"] == "leases of the old fleet to end, 1m0s left" && fleet["next"] != nil && fleet["ready"] == nil
	})
	code, answer := post(t, a, "/v1/renew", named(last))
	require.NotEqual(t, http.StatusOK, code, answer)
	setFleet(other, `,"now":true`)
	granted()
	require.Equal(t, true, mustPost(t, a, "/v1/release", named(last))["released"])

	for _, r := range other { // the fleet is gone
		r.Kill()
	}
	setFleet(old, `,"now":true`)
	eventually(t, "it waits for the old fleet", func() bool {
		return mustPost(t, a, "/v1/get-fleet", `{}`)["waitingFor"] == "the old fleet: 0 of 3 Redis nodes have the new version, 2 are needed"
	})
	setFleet(old, `,"now":true,"force":true`)
	granted()
}

// TestProvideFloor: after a restore with the Redis nodes emptied, an operator's
// floor lets the mode serve again.
func TestProvideFloor(t *testing.T) {
	servers := startRedis(t, 3)
	s := startShort(t, servers)
	a := s.Address()
	last := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	response, err := http.Post("http://"+a+"/v1/save-snapshot", "application/json", nil)
	require.NoError(t, err)
	defer response.Body.Close()
	for _, r := range servers {
		require.NoError(t, r.Wipe())
		require.NoError(t, r.Start())
	}
	code, answer := post(t, a, "/v1/provide-floor", `{"floor":1}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	restored, err := http.Post("http://"+a+"/v1/restore-snapshot", "application/octet-stream", response.Body)
	require.NoError(t, err)
	defer restored.Body.Close()
	require.Equal(t, http.StatusOK, restored.StatusCode)
	var fleet map[string]any
	eventually(t, "it waits for reports", func() bool {
		fleet = mustPost(t, a, "/v1/get-fleet", `{}`)
		return fleet["waitingFor"] == "0 of 3 Redis nodes have reported how far tokens had come, 2 are needed; "+
			"if the others are lost, 'leased redis init --floor' goes on without them"
	})
	mustPost(t, a, "/v1/provide-floor", fmt.Sprintf(`{"floor":%.0f}`, fleet["proposedFloor"]))
	awaitMode(t, a, "fast/", engine.Efficiency)
	next := mustPost(t, a, "/v1/acquire", `{"resource":"fast/a"}`)
	require.Greater(t, next["token"], fleet["proposedFloor"])
	require.Greater(t, next["token"], last["token"])
}
