package redlockadapter

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOldRedisIsRefused(t *testing.T) {
	good := facts{"redis_version": "7.0.15", "role": "master", "maxmemory_policy": "noeviction", "run_id": "x"}
	require.NoError(t, good.check("node"))
	good["redis_version"] = "6.2.14"
	require.ErrorIs(t, good.check("node"), ErrNodeSetup)
	require.ErrorContains(t, good.check("node"), "version 7")
}

func TestDurability(t *testing.T) {
	zeros := "0000000000000000000000000000000000000000"
	for name, c := range map[string]struct {
		facts facts
		fsync string
		want  bool
	}{
		"always":       {facts{"aof_enabled": "1", "master_replid2": zeros}, "always", true},
		"every second": {facts{"aof_enabled": "1", "master_replid2": zeros}, "everysec", false},
		"snapshots":    {facts{"aof_enabled": "0", "master_replid2": zeros}, "always", false},
		"promoted":     {facts{"aof_enabled": "1", "master_replid2": "4f"}, "always", false},
		"forbidden":    {facts{"aof_enabled": "1", "master_replid2": zeros}, "", false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.facts.durable(c.fsync)) })
	}
}
