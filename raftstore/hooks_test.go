package raftstore

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// counts are the calls of the hooks of one node.
type counts struct {
	events                                    [machine.EventOpened + 1]atomic.Int64
	committed, operations, handedOff, stored  atomic.Int64
	snapshots, snapshotBytes, leaders, losses atomic.Int64
}

func (c *counts) hooks() Hooks {
	return Hooks{
		Applied: func(events []machine.Event) {
			for i := range events {
				c.events[events[i].Type].Add(1)
			}
		},
		Committed:     func(operations int, _ time.Duration) { c.committed.Add(1); c.operations.Add(int64(operations)) },
		HandedOff:     func(time.Duration) { c.handedOff.Add(1) },
		Stored:        func(time.Duration) { c.stored.Add(1) },
		Snapshot:      func(_ time.Duration, bytes int64) { c.snapshots.Add(1); c.snapshotBytes.Store(bytes) },
		LeaderChanged: func() { c.leaders.Add(1) },
		Restored:      func(leases int) { c.losses.Add(int64(leases)) },
	}
}

// Hooks report each event once, on the leader, and the work of the node.
func TestHooks(t *testing.T) { eachKind(t, testHooks) }

func testHooks(t *testing.T, kind logstore.Kind) {
	all := []*counts{{}, {}, {}}
	opened := 0
	c := startDisk(t, 3, kind, func(c *Config) {
		c.Hooks = all[opened].hooks()
		opened++
	})
	ctx := testContext(t)
	s, other := openSession(t, c.backend(), time.Hour), openSession(t, c.backend(), time.Hour)
	_, err := s.Acquire(ctx, lockRequest(1, "a"))
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		request := lockRequest(1, "a")
		request.Wait = true
		_, err := other.Acquire(ctx, request)
		granted <- err
	}()
	leader := c.leader()
	eventually(t, "a caller waits", leader.hub.HasWaits)
	require.NoError(t, s.Release(ctx, engine.Held{Nonce: 1}))
	require.NoError(t, <-granted)
	c.agree()
	sum := func(of func(*counts) *atomic.Int64) (n int64) {
		for _, one := range all {
			n += of(one).Load()
		}
		return n
	}
	for event, want := range map[machine.EventType]int64{machine.EventGranted: 2, machine.EventQueued: 1,
		machine.EventReleased: 1, machine.EventExpired: 0} {
		require.Equal(t, want, sum(func(c *counts) *atomic.Int64 { return &c.events[event] }), event)
	}
	require.EqualValues(t, 1, sum(func(c *counts) *atomic.Int64 { return &c.handedOff }))
	for _, one := range all {
		require.Positive(t, one.stored.Load(), "every member writes its log")
		require.Positive(t, one.leaders.Load(), "every member sees the election")
	}
	require.GreaterOrEqual(t, sum(func(c *counts) *atomic.Int64 {
		return &c.operations
	}), sum(func(c *counts) *atomic.Int64 { return &c.committed }))

	var saved bytes.Buffer
	info, err := leader.SaveSnapshot(ctx, &saved)
	require.NoError(t, err)
	require.Equal(t, info.Size, sum(func(c *counts) *atomic.Int64 { return &c.snapshotBytes }))
	_, err = leader.RestoreSnapshot(ctx, &saved)
	require.NoError(t, err)
	require.EqualValues(t, 1, sum(func(c *counts) *atomic.Int64 { return &c.losses }), "the lease of the waiter is lost")
}

// The arrival of a command is that of its own operation, also beside barriers.
func TestArrivals(t *testing.T) {
	at := func(d time.Duration) engine.Instant { return engine.NewInstant(time.Unix(0, 0), d) }
	release := &machine.Release{}
	a := arrivals{operations: []operation{{Caller: caller{arrived: at(1)}},
		{Command: release, Caller: caller{arrived: at(2)}},
		{Caller: caller{arrived: at(3)}}, {Caller: caller{arrived: at(4)}},
		{Command: release, Caller: caller{arrived: at(5)}}}}
	require.Equal(t, at(2), a.next())
	require.Equal(t, at(5), a.next())
	require.Equal(t, at(5), a.next(), "an EndRequests that the proposer has added")
}
