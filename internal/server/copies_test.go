package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease/engine"
)

// A member that ended in the middle of an attempt left it on one Redis node, and another node is down. A copy of the
// call is not refused because of that.
func TestAttemptIsNotRefusedByItself(t *testing.T) {
	t.Parallel()
	nodes := startRedis(t, 3)
	s := startOnFleet(t, fleetOf(nodes, longTTL))
	const call = `{"resource": "fast/a", "ttl": "1m", "attempt": "0123456789abcdef"}`
	first := mustPost(t, s.Address(), "/v1/acquire", call)
	for _, node := range nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		eventually(t, "the lease is on all nodes", func() bool {
			keys, err := client.Keys(testContext(t), "*:lock:fast/a").Result()
			if node == nodes[0] && len(keys) == 1 {
				require.NoError(t, client.Del(testContext(t), keys[0]).Err())
			}
			return err == nil && len(keys) == 1
		})
	}
	asAnotherAttempt(t, nodes[2], "fast/a")
	nodes[1].Kill()
	require.Greater(t, mustPost(t, s.Address(), "/v1/acquire", call)["token"], first["token"])
}

// A copy of a call that was granted is not told that the lock is held while the Redis nodes cannot renew the lease: its
// caller would give up a lease that it has.
func TestCopyOfAGrantedCallIsNotHeld(t *testing.T) {
	t.Parallel()
	nodes := startRedis(t, 3)
	s := startOnFleet(t, fleetOf(nodes, longTTL))
	const call = `{"resource": "fast/a", "ttl": "1m", "attempt": "0123456789abcdef"}`
	first := mustPost(t, s.Address(), "/v1/acquire", call)
	writable := func(replicas string) {
		for _, node := range nodes {
			client := redis.NewClient(&redis.Options{Addr: node.Addr})
			require.NoError(t, client.ConfigSet(testContext(t), "min-replicas-to-write", replicas).Err())
			require.NoError(t, client.Close())
		}
	}
	writable("1") // it has none
	_, answer := post(t, s.Address(), "/v1/acquire", call)
	require.Equal(t, "uncertain", answer["code"], answer)
	writable("0")
	require.Equal(t, first["token"], mustPost(t, s.Address(), "/v1/acquire", call)["token"])
}

// A copy of a call that was granted gets its lease also if that is the last one that its user may have.
func TestCopyOfTheLastAllowedLease(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *server.Config) {
		c.Redis, c.Limits = fleetOf(startRedis(t, 3), longTTL), limits.Default()
		c.Limits.Cluster.LeasesPerUser = 1
	})
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	const call = `{"resource": "fast/a", "ttl": "1m", "attempt": "0123456789abcdef"}`
	first := mustPost(t, s.Address(), "/v1/acquire", call)
	for _, wait := range []string{"0s", "1ms"} {
		_, answer := post(t, s.Address(), "/v1/acquire",
			`{"resource": "fast/b", "attempt": "another-attempt!", "wait": "`+wait+`"}`)
		require.Equal(t, "limit", answer["code"], answer)
	}
	require.Equal(t, first["token"], mustPost(t, s.Address(), "/v1/acquire", call)["token"])
}

// A waiting acquire with an attempt leaves the queue when its caller is gone, unless a copy of it waits. Otherwise the
// lock would be granted to nobody. The attempt can be repeated after that.
func TestAttemptOfALostCallerLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *server.Config) {
		c.Limits = limits.Default()
		c.Limits.Cluster.WaitersPerUser = 2
	})
	holder := mustPost(t, s.Address(), "/v1/acquire", `{"resource": "a", "ttl": "1h"}`)
	const call = `{"resource": "a", "ttl": "1h", "wait": "1h", "attempt": "0123456789abcdef"}`
	lost := func() context.CancelFunc {
		ctx, cancel := context.WithCancel(testContext(t))
		go func() {
			for ctx.Err() == nil { // a call that only asks for the limit may be in its place
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address()+"/v1/acquire",
					strings.NewReader(call))
				if err != nil {
					panic(err)
				}
				request.Header.Set("Content-Type", "application/json")
				if response, err := http.DefaultClient.Do(request); err == nil {
					response.Body.Close()
				}
			}
		}()
		return cancel
	}
	waiters := func() int {
		lock := mustPost(t, s.Address(), "/v1/inspect", `{"resource": "a"}`)["lock"].(map[string]any)
		return len(lock["waiters"].([]any))
	}
	served := func(n int) func() bool { // the limit shows how many calls wait
		return func() bool {
			_, answer := post(t, s.Address(), "/v1/acquire", `{"resource": "free", "wait": "1ms", "ttl": "1ms"}`)
			return (answer["code"] == "limit") == (n == 2)
		}
	}
	first := lost()
	eventually(t, "the first copy waits", func() bool { return waiters() == 1 })
	second := lost()
	eventually(t, "both copies are served", served(2))
	first()
	eventually(t, "the first copy is gone", served(1))
	require.Equal(t, 1, waiters(), "the other copy waits")
	second()
	eventually(t, "the attempt has left the queue", func() bool { return waiters() == 0 })

	again := postAsync(t, s.Address(), "/v1/acquire", call)
	eventually(t, "a later copy waits", func() bool { return waiters() == 1 })
	mustPost(t, s.Address(), "/v1/release", leaseName(holder))
	require.NotZero(t, (<-again)["token"])
}

// An acquire with an attempt that is refused leaves no session behind: a caller that tries again and again, for a long
// TTL, would have more sessions than its limit.
func TestRefusedAttemptLeavesNoSession(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	mustPost(t, s.Address(), "/v1/acquire", `{"resource": "a", "ttl": "1h"}`)
	for _, wait := range []string{"0s", "1ms"} {
		_, answer := post(t, s.Address(), "/v1/acquire",
			`{"resource": "a", "ttl": "1h", "attempt": "0123456789abcdef", "wait": "`+wait+`"}`)
		require.Equal(t, "held", answer["code"], answer)
		require.EqualValues(t, 1, mustPost(t, s.Address(), "/v1/status", `{}`)["sessions"], "with a wait of %s", wait)
	}

	granted := mustPost(t, s.Address(), "/v1/acquire", `{"resource": "b", "attempt": "another-attempt!"}`)
	_, answer := post(t, s.Address(), "/v1/acquire", `{"resource": "c", "attempt": "another-attempt!"}`)
	require.Equal(t, "invalid", answer["code"], "the attempt is for another lock")
	mustPost(t, s.Address(), "/v1/renew", leaseName(granted))
}
