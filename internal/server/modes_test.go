package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/redlockadapter"
)

// longTTL is the longest TTL in tests that do not wait for it.
const longTTL = time.Minute

// startRedis starts empty Redis servers.
func startRedis(t testing.TB, n int) (servers []*testserver.RedisServer) {
	t.Helper()
	for range n {
		servers = append(servers, testserver.Redis(t))
	}
	return servers
}

// fleetOf returns the fleet of some servers.
func fleetOf(servers []*testserver.RedisServer, maxTTL time.Duration) engine.Fleet {
	fleet := engine.Fleet{Namespace: "test", MaxTTL: maxTTL}
	for _, s := range servers {
		fleet.Addresses = append(fleet.Addresses, s.Addr)
	}
	return fleet
}

// startBoth starts a server with both modes, and locks that begin with "fast/" in
// efficiency mode.
func startBoth(t testing.TB) *server.Server {
	t.Helper()
	return startOn(t, fleetOf(startRedis(t, 3), longTTL))
}

// startOn is startBoth on a fleet that runs.
func startOn(t testing.TB, fleet engine.Fleet) *server.Server {
	t.Helper()
	s := startOne(t, func(c *server.Config) { c.Redis = fleet })
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	return s
}

// setMode moves locks, and returns when the move is complete and the member that
// is asked has applied it.
func setMode(t testing.TB, address, prefix string, mode engine.Mode) {
	t.Helper()
	beginMove(t, address, prefix, mode, true)
	awaitMode(t, address, prefix, mode)
}

// beginMove sets a policy.
func beginMove(t testing.TB, address, prefix string, mode engine.Mode, now bool) {
	t.Helper()
	code, answer := post(t, address, "/v1/set-policy", fmt.Sprintf(`{"policy":{"prefix":%q,"mode":%q},"now":%v}`, prefix, mode, now))
	require.Equal(t, http.StatusOK, code, answer)
}

// awaitMode returns when a prefix has a mode and does not move.
func awaitMode(t testing.TB, address, prefix string, mode engine.Mode) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q has mode %s", prefix, mode), func() bool {
		_, listed := post(t, address, "/v1/list-policies", `{}`)
		policies, _ := listed["policies"].([]any)
		for _, p := range policies {
			if p := p.(map[string]any); p["prefix"] == prefix {
				return p["mode"] == mode.String() && p["next"] == nil && ready(t, address)
			}
		}
		return false
	})
}

func ready(t testing.TB, address string) bool {
	t.Helper()
	_, fleet := post(t, address, "/v1/get-fleet", `{}`)
	return fleet["ready"] == true
}

// mustPost is a JSON call that succeeds.
func mustPost(t testing.TB, address, path, body string) map[string]any {
	t.Helper()
	code, answer := post(t, address, path, body)
	require.Equal(t, http.StatusOK, code, answer)
	return answer
}

// named is how a lease is named after its acquire.
func named(l map[string]any) string {
	return fmt.Sprintf(`{"resource":%q,"token":%.0f}`, l["resource"], l["token"])
}

func TestConformanceOfEfficiency(t *testing.T) {
	s := startBoth(t)
	setMode(t, s.Address(), "leasetest/", engine.Efficiency)
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		return leasetest.Subject{
			Backend:     func() engine.Backend { return client(t, []string{s.Address()}).Efficiency() },
			Mode:        engine.Efficiency,
			TTL:         time.Second,
			Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
		}
	})
}

// TestModes: the policy decides, and a caller with another idea is told both.
func TestModes(t *testing.T) {
	s := startBoth(t)
	fast := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "efficiency", fast["mode"], fast)
	require.Equal(t, "10s", fast["ttl"])
	slow := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"slow/a"}`)
	require.Equal(t, "correctness", slow["mode"])
	for _, c := range []struct{ resource, expected, has string }{{"fast/b", "correctness", "efficiency"}, {"slow/b", "efficiency", "correctness"}} {
		code, answer := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"mode":%q}`, c.resource, c.expected))
		require.Equal(t, http.StatusConflict, code)
		require.Equal(t, "mode-mismatch", answer["code"])
		require.Equal(t, c.expected, answer["expectedMode"])
		require.Equal(t, c.has, answer["mode"])
	}
	code, answer := post(t, s.Address(), "/v1/acquire", `{"resources":["fast/b","slow/b"]}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "a set must have one mode")
	code, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/b","shared":true}`)
	require.Equal(t, http.StatusNotImplemented, code)
	require.Contains(t, answer["message"], "exclusive leases and sets only")

	require.Equal(t, []any{fast["token"]}, mustPost(t, s.Address(), "/v1/renew", named(fast))["tokens"])
	require.Equal(t, true, mustPost(t, s.Address(), "/v1/release", named(fast))["released"])
	require.Nil(t, mustPost(t, s.Address(), "/v1/release", named(fast))["released"])
	code, answer = post(t, s.Address(), "/v1/renew", named(fast))
	require.Equal(t, http.StatusNotFound, code, answer)
}

// TestEfficiencyHasNoSessions: a session id with a lock in efficiency mode is
// refused with the way to do it.
func TestEfficiencyHasNoSessions(t *testing.T) {
	s := startBoth(t)
	opened := mustPost(t, s.Address(), "/v1/open-session", `{"ttl":"1m"}`)
	code, answer := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"fast/a","sessionId":%q}`, opened["sessionId"]))
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Equal(t, "invalid", answer["code"])
	require.Contains(t, answer["message"], "acquire it without sessionId, and renew it by resource and token")

	granted := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	for _, path := range []string{"/v1/renew", "/v1/close-session"} {
		code, answer = post(t, s.Address(), path, fmt.Sprintf(`{"sessionId":%q}`, granted["sessionId"]))
		require.Equal(t, http.StatusBadRequest, code, answer)
		require.Contains(t, answer["message"], "name the lease by resource and token")
	}
}

// TestHeldSaysByWhom: the error of a lock that is held names the holder.
func TestHeldSaysByWhom(t *testing.T) {
	s := startBoth(t)
	for _, name := range []string{"slow/a", "fast/a"} {
		granted := mustPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m","holder":"ann"}`, name))
		code, refused := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m"}`, name))
		require.Equal(t, http.StatusConflict, code)
		require.Contains(t, refused["message"], fmt.Sprintf("%q by ann with token %.0f", name, granted["token"]))
	}
}

// TestLongTTLsAreRefused: no lease in efficiency mode outlives the quarantine of
// a node, by its policy or by its caller.
func TestLongTTLsAreRefused(t *testing.T) {
	s := startBoth(t)
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"long/","mode":"efficiency","ttl":"2m"}}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "ttl (2m0s) must be at most the longest of the Redis fleet (1m0s)")
	code, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"2m"}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "ttl (2m0s)")
	code, answer = post(t, s.Address(), "/v1/set-fleet", `{"fleet":{"namespace":"n","maxTtl":"1s","addresses":["127.0.0.1:1"]}}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], `must be at least the ttl (10s) of the policy for "fast/"`)
}

// redlockConfig is the configuration of another process that uses a fleet.
func redlockConfig(fleet engine.Fleet) redlockadapter.Config {
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL}
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, &redis.Options{Addr: address})
	}
	return config
}
