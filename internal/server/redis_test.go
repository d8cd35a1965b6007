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
	"github.com/leased-project/leased/redlockadapter"
)

// longTTL is the longest TTL of the fleet in tests that do not wait for it.
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

// startWithRedis starts a server with both modes. Locks whose names start with
// "fast/" are in efficiency mode.
func startWithRedis(t testing.TB) *server.Server {
	t.Helper()
	return startOnFleet(t, fleetOf(startRedis(t, 3), longTTL))
}

// startOnFleet is startWithRedis on a fleet that runs already.
func startOnFleet(t testing.TB, fleet engine.Fleet) *server.Server {
	t.Helper()
	s := startServer(t, func(c *server.Config) { c.Redis = fleet })
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	return s
}

// startClusterWithRedis starts members on a fleet, with "fast/" in efficiency mode,
// and returns when all members have applied that.
func startClusterWithRedis(t testing.TB, size int, fleet engine.Fleet) *cluster {
	t.Helper()
	return startClusterInBothModes(t, size, memberSpec{Redis: fleet})
}

// startClusterInBothModes is startClusterWithRedis for members with other settings, too.
func startClusterInBothModes(t testing.TB, size int, common memberSpec) *cluster {
	t.Helper()
	c := startClusterWith(t, size, common)
	setMode(t, c.awaitLeader().spec.API, "fast/", engine.Efficiency)
	c.awaitApplied("fast/", engine.Efficiency)
	return c
}

// awaitApplied returns when every running member serves a prefix in a mode.
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
			post(c.t, m.spec.API, "/v1/release", leaseName(l)) // otherwise it ends with its TTL
			return true
		})
	}
}

// setMode migrates locks now, and returns when the migration is complete and the
// member has applied it.
func setMode(t testing.TB, address, prefix string, mode engine.Mode) {
	t.Helper()
	startMigration(t, address, prefix, mode, true)
	awaitMode(t, address, prefix, mode)
}

// startMigration sets a policy.
func startMigration(t testing.TB, address, prefix string, mode engine.Mode, now bool) {
	t.Helper()
	mustPost(t, address, "/v1/set-policy", fmt.Sprintf(`{"policy":{"prefix":%q,"mode":%q},"now":%v}`, prefix, mode, now))
}

// awaitMode returns when the locks of a prefix have a mode and can be granted.
func awaitMode(t testing.TB, address, prefix string, mode engine.Mode) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q has mode %s", prefix, mode), func() bool {
		return hasMode(t, address, prefix, mode) && mustPost(t, address, "/v1/get-fleet", `{}`)["ready"] == true
	})
}

// hasMode reports whether the locks of a prefix have a mode and do not migrate.
func hasMode(t testing.TB, address, prefix string, mode engine.Mode) bool {
	t.Helper()
	_, listed := post(t, address, "/v1/list-policies", `{}`)
	policies, _ := listed["policies"].([]any)
	for _, p := range policies {
		if p := p.(map[string]any); p["prefix"] == prefix {
			return p["mode"] == mode.String() && p["next"] == nil
		}
	}
	return false
}

// redlockConfig is the configuration of another process that uses a fleet.
func redlockConfig(fleet engine.Fleet) redlockadapter.Config {
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, NodeTimeout: busyTimeout(fleet)}
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, &redis.Options{Addr: address})
	}
	return config
}

// acquired acquires a lock as soon as it can be granted, and checks that its token is
// above an earlier one.
func acquired(t testing.TB, address, body string, above any) map[string]any {
	t.Helper()
	var granted map[string]any
	eventually(t, "the lock is granted", func() bool {
		var code int
		code, granted = post(t, address, "/v1/acquire", body)
		return code == http.StatusOK
	})
	require.Greater(t, granted["token"], above)
	return granted
}
