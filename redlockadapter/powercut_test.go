package redlockadapter_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// powerCut kills and restarts all servers. whileDown, if not nil, runs in between.
func (f *fleet) powerCut(t *testing.T, whileDown func()) {
	t.Helper()
	for _, s := range f.servers {
		s.Kill()
	}
	if whileDown != nil {
		whileDown()
	}
	for _, s := range f.servers {
		if s.Pid() == 0 {
			require.NoError(t, s.Start())
		}
	}
}

// requireRecovered acquires the lock again, through a process that was connected before
// and through a new one, and checks that the tokens jumped.
func (f *fleet) requireRecovered(t *testing.T, k *locker, b *redlockadapter.Backend) {
	t.Helper()
	last := k.last
	require.Greater(t, k.acquire(b), last)
	require.Greater(t, k.last, recovery.Jump)
	k.acquire(f.backend(t))
	waitFor(t, func() bool { return len(live(t, b)) == len(f.servers) }, "every node votes again")
	k.acquire(b)
}

// After a power cut a quorum that can report is enough, whatever the age of its data: no
// operator is needed, and tokens keep growing.
func TestFleetRecoversFromAPowerCut(t *testing.T) {
	t.Parallel()
	t.Run("good, old and no data", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, 3, testserver.RedisAppendOnly()).withShortQuarantine().init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		k.acquireN(b, 5)
		require.NoError(t, f.servers[1].Save())
		k.acquireN(b, 100)
		f.powerCut(t, func() {
			require.NoError(t, f.servers[1].PutBack())
			require.NoError(t, f.servers[2].Wipe())
		})
		f.requireRecovered(t, k, b)
	})
	t.Run("only old data", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, 3, testserver.RedisConfig("appendonly", "no")).withShortQuarantine().init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		k.acquireN(b, 5)
		for i := range f.servers {
			waitFor(t, func() bool { return f.client(t, i).Save(testContext(t)).Err() == nil }, "no other save is in progress")
		}
		k.acquireN(b, 100)
		f.powerCut(t, nil)
		f.requireRecovered(t, k, b)
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, 3, testserver.RedisConfig("appendonly", "yes"), testserver.RedisConfig("no-appendfsync-on-rewrite",
			"yes")).withShortQuarantine().init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		k.acquireN(b, 5)
		f.powerCut(t, nil)
		f.requireRecovered(t, k, b)
		f.powerCut(t, nil)
		f.requireRecovered(t, k, b)
	})
}

// A single node recovers from a restart without an operator, and sweeps the data of its
// former life.
func TestSingleNodeRecoversFromARestart(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]testserver.RedisOption{
		"append-only file": {testserver.RedisAppendOnly()},
		"snapshot":         {testserver.RedisConfig("save", "3600", "1")}, // written at shutdown
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 1, options...).withShortQuarantine().init(t)
			b, k := f.backend(t), newLocker(t, f.config)
			k.acquireN(b, 20)
			f.servers[0].Stop()
			require.NoError(t, f.servers[0].Start())
			f.requireRecovered(t, k, b)

			require.NoError(t, b.Sweep(testContext(t)))
			c := f.client(t, 0)
			keys, err := c.Keys(testContext(t), "{leased}:*").Result()
			require.NoError(t, err)
			life, err := c.Get(testContext(t), "{leased}:life").Result()
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"{leased}:life", "{leased}:" + life + ":node",
				"{leased}:" + life + ":lock:locker"}, keys)
			k.acquire(b)
		})
	}
}

// If fewer than a quorum can report, an operator must provide a floor.
func TestEmptiedFleetNeedsAnOperator(t *testing.T) {
	t.Parallel()
	for name, emptied := range map[string]int{"all emptied": 3, "two of three emptied": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3, testserver.RedisAppendOnly()).withShortQuarantine()
			b, k := f.backend(t), newLocker(t, f.config)
			noState := func() bool {
				_, err := k.try(b)
				require.ErrorIs(t, err, engine.ErrUnavailable)
				return errors.Is(err, redlockadapter.ErrNoState) && strings.Contains(err.Error(), "leased redis init")
			}
			k.acquireN(b, 20)

			f.powerCut(t, func() {
				for _, s := range f.servers[:emptied] {
					require.NoError(t, s.Wipe())
				}
			})
			waitFor(t, noState, "the fleet was emptied")
			const floor fencing.Token = 1 << 40
			require.NoError(t, redlockadapter.Init(testContext(t), f.config, floor))
			require.Greater(t, k.acquire(b), floor)
			waitFor(t, func() bool { return len(live(t, b)) == len(f.servers) })
			require.NoError(t, redlockadapter.Init(testContext(t), f.config, floor), "all nodes are voters above it")
			err := redlockadapter.Init(testContext(t), f.config, floor*2)
			require.Less(t, k.acquire(b), floor*2)
			require.ErrorIs(t, err, engine.ErrInvalid, "voters stay as they are")
			require.ErrorContains(t, err, "0 of 3 above")
		})
	}
}

// An unreachable node may still report. The error does not ask for an operator.
func TestUnreachableNodesAreNotReportedAsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		k.acquire(b)
		f.nodes[0].restart(t, false)
		f.nodes[1].stop()
		f.nodes[2].restart(t, true)
		advance(5 * time.Second)
		_, err := k.try(b)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NotErrorIs(t, err, redlockadapter.ErrNoState)
		f.nodes[1].start(t)
		advance(2 * virtualTTL)
		k.acquire(b)
		for _, n := range f.nodes {
			n.restart(t, false)
		}
		advance(5 * time.Second)
		_, err = k.try(b)
		require.ErrorIs(t, err, redlockadapter.ErrNoState)
	})
}
