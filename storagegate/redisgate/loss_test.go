package redisgate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/redisgate"
)

// These tests show where G1 does not hold, as docs/GUARANTEES.md says. Verify
// reports each of these servers.

func TestMarksAreLostWithoutAnAppendOnlyFile(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server.Addr)
	gate := redisgate.New(client, fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), orders, 34))
	require.ErrorIs(t, gate.Enter(t.Context(), orders, 33), fencing.ErrStale)
	require.Contains(t, weaknesses(t, client), "appendonly")
	server.Kill()
	require.NoError(t, server.Start())
	require.NoError(t, gate.Enter(t.Context(), orders, 33), "the mark 34 is lost")
}

// The replica has lost the connection to its master when the newer token is
// admitted, and is promoted after the master has crashed. The append-only file of
// the master does not help.
func TestMarksAreLostByAFailover(t *testing.T) {
	master := testserver.Redis(t, testserver.RedisAppendOnly())
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := testserver.Redis(t, testserver.RedisAppendOnly(), testserver.RedisConfig("replicaof", host, port))
	client, standby := connect(t, master.Addr), connect(t, replica.Addr)
	gate := redisgate.New(client, fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), orders, 33))
	require.Eventually(t, func() bool {
		return standby.Get(t.Context(), redisgate.MarkKey(orders)).Val() == "33"
	}, timeout, tick)
	require.Contains(t, weaknesses(t, client), "replicas")

	_, unused, _ := strings.Cut(testserver.FreeAddr(t), ":")
	require.NoError(t, standby.Do(t.Context(), "REPLICAOF", "127.0.0.1", unused).Err())
	require.NoError(t, gate.Enter(t.Context(), orders, 34))
	master.Kill()
	require.NoError(t, standby.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	require.NoError(t, redisgate.New(standby, fencing.Rule{}).Enter(t.Context(), orders, 33), "the mark 34 is lost")
}
