package redisgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// timeout and tick are for require.Eventually.
const (
	timeout = 2 * time.Minute
	tick    = 5 * time.Millisecond
)

// weaknesses returns what Verify reports, by setting.
func weaknesses(t *testing.T, client redis.UniversalClient) map[string]string {
	t.Helper()
	err := redisgate.Verify(t.Context(), client)
	if err == nil {
		return nil
	}
	require.ErrorIs(t, err, storagegate.ErrNotDurable)
	var weak *storagegate.VerifyError
	require.ErrorAs(t, err, &weak)
	found := map[string]string{}
	for _, w := range weak.Weaknesses {
		require.NotEmpty(t, w.Advice)
		require.Contains(t, err.Error(), w.Server+": "+w.Setting+" is "+w.Value+": ")
		found[w.Setting] = w.Value
	}
	return found
}

func TestVerify(t *testing.T) {
	durable := testserver.Redis(t, testserver.RedisAppendOnly())
	client := connect(t, durable.Addr)
	require.Empty(t, weaknesses(t, client))

	require.Equal(t, map[string]string{"appendonly": "no", "appendfsync": "everysec"}, weaknesses(t, empty(t)))

	for setting, weak := range map[string]string{"appendfsync": "everysec", "no-appendfsync-on-rewrite": "yes",
		"maxmemory-policy": "allkeys-lru"} {
		before, err := client.ConfigGet(t.Context(), setting).Result()
		require.NoError(t, err)
		require.NoError(t, client.ConfigSet(t.Context(), setting, weak).Err())
		require.Equal(t, map[string]string{setting: weak}, weaknesses(t, client))
		require.NoError(t, client.ConfigSet(t.Context(), setting, before[setting]).Err())
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	require.Empty(t, weaknesses(t, client), "marks do not expire, so a volatile- policy keeps them")
}

// A user without the right to read the settings learns that they are unknown.
func TestVerifyReportsUnknownSettings(t *testing.T) {
	durable := testserver.Redis(t, testserver.RedisAppendOnly())
	require.NoError(t, connect(t, durable.Addr).Do(t.Context(), "ACL", "SETUSER", "default", "-config").Err())
	require.Equal(t, map[string]string{"appendfsync": "unknown", "no-appendfsync-on-rewrite": "unknown"},
		weaknesses(t, connect(t, durable.Addr)))
}

func TestVerifyReportsReplicas(t *testing.T) {
	master := testserver.Redis(t, testserver.RedisAppendOnly())
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := testserver.Redis(t, testserver.RedisAppendOnly(), testserver.RedisConfig("replicaof", host, port))
	require.Equal(t, "slave", weaknesses(t, connect(t, replica.Addr))["role"])
	client := connect(t, master.Addr)
	require.Eventually(t, func() bool { return weaknesses(t, client)["replicas"] == "1" }, timeout, tick)
}

func TestVerifyOfACluster(t *testing.T) {
	node := testserver.Redis(t, testserver.RedisAppendOnly(), testserver.RedisClusterMode())
	single := connect(t, node.Addr)
	require.Equal(t, map[string]string{"cluster-enabled": "yes"}, weaknesses(t, single),
		"a client that follows no redirection")
	require.NoError(t, single.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr}})
	t.Cleanup(func() { cluster.Close() })
	require.Eventually(t, func() bool { return redisgate.Verify(t.Context(), cluster) == nil }, timeout, tick)
	require.NoError(t, single.ConfigSet(t.Context(), "appendfsync", "no").Err())
	require.Equal(t, map[string]string{"appendfsync": "no"}, weaknesses(t, cluster),
		"every master of a cluster is checked")
}

func TestVerifyOfAnUnreachableServer(t *testing.T) {
	server := testserver.Redis(t)
	server.Stop()
	err := redisgate.Verify(t.Context(), connect(t, server.Addr))
	require.ErrorContains(t, err, "read the INFO of Redis "+server.Addr)
	require.NotErrorIs(t, err, storagegate.ErrNotDurable)
}
