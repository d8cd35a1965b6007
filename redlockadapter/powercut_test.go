package redlockadapter_test

import (
	"errors"
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

// powerCut kills all servers at once. before runs while they are down.
func (f *fleet) powerCut(t *testing.T, before func()) {
	t.Helper()
	for _, s := range f.servers {
		s.Kill()
	}
	if before != nil {
		before()
	}
	for _, s := range f.servers {
		if s.Pid() == 0 {
			require.NoError(t, s.Start())
		}
	}
}

// requireRecovered takes the lock again, by a process that was there all the time
// and by a new one, and checks that tokens have moved past everything forgotten.
func (f *fleet) requireRecovered(t *testing.T, k *taker, b *redlockadapter.Backend) {
	t.Helper()
	last := k.last
	require.Greater(t, k.take(b), last)
	require.Greater(t, k.last, recovery.Jump)
	k.take(f.backend(t))
	waitFor(t, func() bool { return len(live(t, b)) == len(f.servers) }, "every node votes again")
	k.take(b)
}

// After a power cut a quorum that can report, whatever the age of its data, is
// enough: no operator is needed, and no token goes back.
func TestAFleetRecoversFromAPowerCut(t *testing.T) {
	t.Parallel()
	t.Run("good, old and no data", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, 3, testserver.RedisAppendOnly()).shortLives().init(t)
		b, k := f.backend(t), newTaker(t)
		k.takeSome(b, 5)
		require.NoError(t, f.servers[1].Save())
		k.takeSome(b, 100)
		f.powerCut(t, func() {
			require.NoError(t, f.servers[1].PutBack())
			require.NoError(t, f.servers[2].Wipe())
		})
		f.requireRecovered(t, k, b)
	})
	t.Run("only old data", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, 3, testserver.RedisConfig("appendonly", "no")).shortLives().init(t)
		b, k := f.backend(t), newTaker(t)
		k.takeSome(b, 5)
		for i := range f.servers {
			require.NoError(t, f.client(t, i).Save(patient(t)).Err())
		}
		k.takeSome(b, 100)
		f.powerCut(t, nil)
		f.requireRecovered(t, k, b)
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, 3, testserver.RedisConfig("appendonly", "yes"), testserver.RedisConfig("no-appendfsync-on-rewrite", "yes")).shortLives().init(t)
		b, k := f.backend(t), newTaker(t)
		k.takeSome(b, 5)
		f.powerCut(t, nil)
		f.requireRecovered(t, k, b)
		f.powerCut(t, nil)
		f.requireRecovered(t, k, b)
	})
}

// A single Redis goes on after a restart without an operator, and sweeps what its
// former life left.
func TestASingleRedisRestarts(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]testserver.RedisOption{
		"append-only file": {testserver.RedisAppendOnly()},
		"snapshot":         {testserver.RedisConfig("save", "3600", "1")}, // written at shutdown
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 1, options...).shortLives().init(t)
			b, k := f.backend(t), newTaker(t)
			k.takeSome(b, 20)
			f.servers[0].Stop()
			require.NoError(t, f.servers[0].Start())
			f.requireRecovered(t, k, b)

			require.NoError(t, b.Sweep(patient(t)))
			c := f.client(t, 0)
			keys, err := c.Keys(patient(t), "{leased}:*").Result()
			require.NoError(t, err)
			life, err := c.Get(patient(t), "{leased}:life").Result()
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"{leased}:life", "{leased}:" + life + ":node", "{leased}:" + life + ":lock:taken"}, keys)
			k.take(b)
		})
	}
}

// If fewer than a quorum can report, only an operator knows a safe floor.
func TestAnEmptiedFleetNeedsAnOperator(t *testing.T) {
	t.Parallel()
	for name, emptied := range map[string]int{"all emptied": 3, "two of three emptied": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3, testserver.RedisAppendOnly()).shortLives()
			b, k := f.backend(t), newTaker(t)
			_, err := k.try(b)
			require.ErrorIs(t, err, redlockadapter.ErrNoState, "it was never initialised")
			require.ErrorIs(t, err, engine.ErrUnavailable)
			require.ErrorContains(t, err, "leased redis init")
			f.init(t)
			k.takeSome(b, 20)

			f.powerCut(t, func() {
				for _, s := range f.servers[:emptied] {
					require.NoError(t, s.Wipe())
				}
			})
			waitFor(t, func() bool {
				_, err = k.try(b)
				require.Error(t, err)
				return errors.Is(err, redlockadapter.ErrNoState)
			})
			const floor fencing.Token = 1 << 40
			require.NoError(t, redlockadapter.Init(patient(t), f.config, floor))
			require.Greater(t, k.take(b), floor)
			waitFor(t, func() bool { return len(live(t, b)) == len(f.servers) })
			require.NoError(t, redlockadapter.Init(patient(t), f.config, floor*2), "nothing is left to decide")
			require.Less(t, k.take(b), floor*2)
		})
	}
}

// A node that is only unreachable may come back with all that is needed: no reason
// to ask an operator for a floor.
func TestUnreachableNodesAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, k := f.backend(t), newTaker(t)
		k.take(b)
		f.nodes[0].restart(t, false)
		f.nodes[1].stop()
		f.nodes[2].restart(t, true)
		pass(5 * time.Second)
		_, err := k.try(b)
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NotErrorIs(t, err, redlockadapter.ErrNoState)
		f.nodes[1].start(t)
		pass(2 * virtualTTL)
		k.take(b)
		for _, n := range f.nodes {
			n.restart(t, false)
		}
		pass(5 * time.Second)
		_, err = k.try(b)
		require.ErrorIs(t, err, redlockadapter.ErrNoState)
	})
}
