package redisgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/storagegate"
)

// Verify checks that marks on the server, or on every master of a Redis Cluster,
// survive a crash of the server and a power failure. It returns a
// *storagegate.VerifyError that says what to set, ErrRing for a *redis.Ring, or another error if a server does not
// answer.
//
// A replica is reported as well: a failover to it can lose the last marks. Redis
// answers a write before its replicas have it. Neither min-replicas-to-write nor
// WAIT changes that: the promoted replica may be one that did not confirm.
func Verify(ctx context.Context, client redis.UniversalClient) error {
	var found []storagegate.Weakness
	var err error
	switch c := client.(type) {
	case *redis.Ring:
		return ErrRing
	case *redis.ClusterClient:
		var mu sync.Mutex
		err = c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			weaknesses, err := verifyServer(ctx, master, master.Options().Addr, true)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, weaknesses...)
			return err
		})
		slices.SortFunc(found, func(a, b storagegate.Weakness) int {
			return strings.Compare(a.Server+a.Setting, b.Server+b.Setting)
		})
	default:
		address := "the server"
		if c, ok := client.(*redis.Client); ok {
			address = c.Options().Addr
		}
		found, err = verifyServer(ctx, client, address, false)
	}
	if err != nil {
		return err
	}
	return storagegate.Verified(found)
}

// verifyServer returns the weaknesses of one server.
func verifyServer(
	ctx context.Context, client redis.Cmdable, address string, cluster bool,
) ([]storagegate.Weakness, error) {
	text, err := client.Info(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("read the INFO of Redis %s: %w", address, err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	var found []storagegate.Weakness
	report := func(bad bool, setting, value, advice string) {
		if bad {
			found = append(found, storagegate.Weakness{Server: address, Setting: setting, Value: value, Advice: advice})
		}
	}
	report(info["role"] != "master", "role", info["role"], "connect to the master")
	report(info["aof_enabled"] != "1", "appendonly", "no", "set appendonly yes, because a restart loses marks otherwise")
	policy := info["maxmemory_policy"]
	report(policy != "noeviction" && !strings.HasPrefix(policy, "volatile-"), "maxmemory-policy", policy,
		"set noeviction or a volatile- policy, because the server may evict marks otherwise")
	report(info["connected_slaves"] != "0", "replicas", info["connected_slaves"],
		"do not fail over to a replica: it may lack the last marks, also with min-replicas-to-write")
	report(info["cluster_enabled"] == "1" && !cluster, "cluster-enabled", "yes", "use a redis.ClusterClient")
	for _, setting := range []struct{ name, want, advice string }{
		{"appendfsync", "always", "set appendfsync always, because a power failure loses the last marks otherwise"},
		{"no-appendfsync-on-rewrite", "no",
			"set no-appendfsync-on-rewrite no, because marks are not synced during a rewrite otherwise"},
	} {
		values, err := client.ConfigGet(ctx, setting.name).Result()
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			report(true, setting.name, "unknown",
				"allow CONFIG GET for this user, or check the setting on the server ("+refused.Error()+")")
		case err != nil:
			return nil, fmt.Errorf("read the setting %s of Redis %s: %w", setting.name, address, err)
		default:
			report(values[setting.name] != setting.want, setting.name, values[setting.name], setting.advice)
		}
	}
	return found, nil
}
