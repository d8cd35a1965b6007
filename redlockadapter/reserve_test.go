package redlockadapter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// A node that is lost twice gets a larger floor the second time, although no other node
// has accepted a token in between.
func TestNodeLostTwiceGetsTwoFloors(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).withShortQuarantine().init(t)
	b := f.backend(t)
	var floors []fencing.Token
	for range 2 {
		require.NoError(t, f.client(t, 0).FlushAll(testContext(t)).Err())
		floors = append(floors, voter(t, b, 0).Floor)
	}
	require.Greater(t, floors[1], floors[0])
}

// A server that restarts twice from the same snapshot does not get the same range twice:
// the recovery writes a snapshot.
func TestRecoveryWritesASnapshot(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1).withShortQuarantine().init(t)
	b, k := f.backend(t), newLocker(t, f.config)
	k.acquireN(b, 5)
	require.NoError(t, f.client(t, 0).Save(testContext(t)).Err())
	for range 2 {
		f.servers[0].Kill()
		require.NoError(t, f.servers[0].Start())
		k.acquireN(b, 50)
	}
}
