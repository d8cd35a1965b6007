package redlockadapter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// A lease that a restarted node forgot has expired when the node votes again.
func TestRestartedNodeVotesAfterItsQuarantine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		k.acquireN(b, 10)
		f.nodes[0].restart(t, true)
		back := now()
		f.nodes[2].stop() // without node 0 there is no quorum
		for {
			if _, err := k.try(b); err == nil {
				break
			}
			require.Less(t, now().Sub(back), 2*virtualTTL)
			advance(100 * time.Millisecond)
		}
		require.GreaterOrEqual(t, now().Sub(back), virtualTTL)
		require.Greater(t, b.NodeStatuses(t.Context())[0].Report.Live.Floor, recovery.Jump)
	})
}

// NodeStatuses reports a quarantine.
func TestQuarantineIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		f.nodes[1].restart(t, false)
		advance(3 * time.Second)
		s := b.NodeStatuses(t.Context())[1]
		require.NoError(t, s.Err)
		require.Nil(t, s.Report.Live)
		require.NotEmpty(t, s.Joining)
		require.Greater(t, s.Quarantine, virtualTTL/2)
		require.Less(t, s.Quarantine, virtualTTL)
		advance(s.Quarantine - 100*time.Millisecond)
		require.Equal(t, []int{0, 2}, live(t, b))
		for _, node := range []int{0, 2} {
			require.Less(t, b.NodeStatuses(t.Context())[node].Report.Live.Floor, recovery.VoteJump,
				"a server that has lost its address may still vote, so no floor is reserved yet")
		}
		advance(2 * time.Second)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
	})
}

// A range initialises only the node that it was assigned to, and only once.
func TestInitialiseNeedsTheJoinNonce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 1)
		// No process recovers the node by itself.
		f.config.Topology = func() engine.Topology { return engine.Topology{Version: 7} }
		b, ctx := f.backend(t), t.Context()
		first := recovery.Range{Join: "first", Version: 7, Floor: 100, Ceiling: 200}
		second := recovery.Range{Join: "second", Version: 7, Floor: 300, Ceiling: 400, Quarantine: virtualTTL}
		initialise := func(r recovery.Range) (time.Duration, error) { return b.Initialise(ctx, 0, f.nodes[0].server(), r) }
		join := func(nonce string) error { return b.Join(ctx, 0, f.nodes[0].server(), nonce, 7) }

		_, err := initialise(first)
		require.Error(t, err, "without a join nonce")
		require.NoError(t, join("first"))
		require.NoError(t, join("second"), "another process takes over")
		_, err = initialise(first)
		require.ErrorContains(t, err, "another join has replaced this one")
		wait, err := initialise(second)
		require.NoError(t, err)
		require.Greater(t, wait, virtualTTL/2, "the node is in quarantine")

		advance(virtualTTL)
		f.nodes[0].restart(t, true)
		advance(2 * time.Second)
		_, err = initialise(second)
		require.Error(t, err, "the node was lost since the range was assigned")
		require.NoError(t, join("second"))
		wait, err = initialise(second)
		require.NoError(t, err)
		require.Greater(t, wait, virtualTTL-time.Second, "the quarantine counts from the first join of this life")
		advance(virtualTTL)
		wait, err = initialise(second)
		require.NoError(t, err)
		require.Zero(t, wait)
		_, err = initialise(second)
		require.Error(t, err, "a range is used once")
		require.ErrorIs(t, b.Join(ctx, 0, "another", "third", 7), redisconn.ErrLife, "a call names the server")
		live := b.NodeStatuses(ctx)[0].Report.Live
		require.Equal(t, []fencing.Token{300, 300, 400}, []fencing.Token{live.Max, live.Floor, live.Ceiling})
	})
}

// If several processes find a lost node at the same time, one of them recovers it. If
// that process ends, another one takes over.
func TestOneProcessRecoversANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		k := newLocker(t, f.config)
		all := []*redlockadapter.Backend{f.backend(t), f.backend(t), f.backend(t)}
		k.acquire(all[0])
		f.nodes[0].restart(t, true)
		for range 10 {
			for _, b := range all {
				k.acquire(b)
			}
			advance(2 * time.Second)
		}
		require.Len(t, live(t, all[0]), 3)
		floor := all[0].NodeStatuses(t.Context())[0].Report.Live.Floor
		advance(virtualTTL)
		require.Equal(t, floor, all[0].NodeStatuses(t.Context())[0].Report.Live.Floor, "it was recovered once")

		one := f.backend(t)
		for _, b := range all {
			require.NoError(t, b.Close(t.Context()))
		}
		f.nodes[1].restart(t, false)
		advance(3 * time.Second)
		require.NotEmpty(t, one.NodeStatuses(t.Context())[1].Joining)
		require.NoError(t, one.Close(t.Context()), "the process ends during the recovery")
		other := f.backend(t)
		advance(3 * virtualTTL)
		require.Len(t, live(t, other), 3)
		k.acquire(other)
	})
}

// All nodes may restart at once, repeatedly.
func TestFleetSurvivesRepeatedRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b, k := f.backend(t), newLocker(t, f.config)
		for range 3 {
			k.acquireN(b, 10)
			for _, n := range f.nodes {
				n.restart(t, true)
			}
			_, err := k.try(b)
			require.ErrorIs(t, err, engine.ErrUnavailable)
			advance(2 * virtualTTL)
			k.acquire(b)
		}
	})
}
