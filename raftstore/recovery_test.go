package raftstore

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
)

// A lost member returns with its old folder, against the instructions. Its log is longer
// than that of the recovered member, but must not replace the floor of the recovery.
func TestRecoveryFloorOverridesOldFolder(t *testing.T) {
	t.Parallel() // in real time: snapshots are named by the millisecond
	run := func(t *testing.T, kind logstore.Kind) {
		t.Parallel()
		c := startDisk(t, 3, kind)
		ctx := testContext(t)
		s := retrying{openSession(t, c.backend(), time.Hour)}
		c.agree()
		behind, ahead := 2, 1
		if c.leader() == c.nodes[behind] {
			behind, ahead = 1, 2
		}
		require.NoError(t, c.nodes[behind].Close())
		for nonce := range engine.Nonce(20) {
			_, err := s.Acquire(ctx, lockRequest(nonce+1, fencing.Resource(fmt.Sprint("lock ", nonce))))
			require.NoError(t, err)
		}
		for i, n := range c.nodes {
			if i != behind {
				require.NoError(t, n.Close())
			}
		}
		floor, err := Recover(c.configs[behind])
		require.NoError(t, err)

		recovered := c.restart(behind)
		alone := &cluster{t: t, nodes: []*Node{recovered}}
		alone.leader()
		old := c.restart(ahead)
		_, err = recovered.AddLearner(ctx, Joiner{ID: old.ID(), Address: old.Address()})
		require.NoError(t, err)
		eventually(t, "the floor", func() bool { return old.Status().LastToken >= floor })
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { run(t, kind) })
	}
}

// cutting is a snapshot store that calls cut when it creates a snapshot.
type cutting struct {
	raft.SnapshotStore
	cut func()
}

func (c *cutting) Create(v raft.SnapshotVersion, index, term uint64, members raft.Configuration, of uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := c.SnapshotStore.Create(v, index, term, members, of, t)
	if err == nil && c.cut != nil {
		c.cut()
	}
	return sink, err
}

// The leader replaces its state and then loses leadership. Its peers may still follow it
// later, so the outcome of the restore is uncertain.
func TestRestoreThatLosesItsLeaderIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := map[string]*cutting{}
		c := startMemory(t, 3, func(config *Config) {
			stores[config.ID] = &cutting{SnapshotStore: config.Storage.Snapshots}
			config.Storage.Snapshots = stores[config.ID]
		})
		openSession(t, c.backend(), time.Hour)
		leader := c.leader()
		var saved bytes.Buffer
		_, err := leader.SaveSnapshot(testContext(t), &saved)
		require.NoError(t, err)
		stores[leader.ID()].cut = func() { c.isolate(leader); pass(3 * DefaultHeartbeatTimeout) }
		_, err = leader.RestoreSnapshot(testContext(t), &saved)
		stores[leader.ID()].cut = nil
		require.GreaterOrEqual(t, leader.Status().LastToken, fencing.FloorStep, "this node has restored the snapshot")
		require.ErrorIs(t, err, engine.ErrUncertain)
	})
}

func TestMemberThatNeverCaughtUpIsNotRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 1, DefaultLogStore)
		openSession(t, c.backend(), time.Hour)
		require.NoError(t, c.nodes[0].storage.Stable.SetUint64(keyCatchUp, 1000))
		require.NoError(t, c.nodes[0].Close())
		_, err := Recover(c.configs[0])
		require.ErrorIs(t, err, ErrStateLost)
	})
}
