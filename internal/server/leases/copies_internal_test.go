package leases

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// The last copy of a call that leaves withdraws the attempt, also if all leave together. A copy that arrives meanwhile
// waits until that is done.
func TestCopyWaitsForTheWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c copies
		id := engine.SessionID{1}
		c.arrive(id)
		c.arrive(id)
		c.leave(id, func() { t.Error("the other copy waits") }, nil)
		release, withdrawn, arrived := make(chan struct{}), false, false
		go c.leave(id, func() { <-release; withdrawn = true }, nil)
		synctest.Wait()
		go func() { c.arrive(id); arrived = true }()
		synctest.Wait()
		require.False(t, arrived, "the attempt is being withdrawn")
		close(release)
		synctest.Wait()
		require.True(t, withdrawn)
		require.True(t, arrived)
		c.leave(id, nil, nil)
		require.Empty(t, c.served)
	})
}

// A copy that leaves before its request was queued withdraws the attempt of a copy that left before it.
func TestLastCopyWithdrawsTheAttemptOfAnother(t *testing.T) {
	var c copies
	id, withdrawn := engine.SessionID{1}, 0
	c.arrive(id)
	c.arrive(id)
	c.leave(id, func() { withdrawn++ }, func() { t.Error("the other copy waits") })
	require.Zero(t, withdrawn)
	c.leave(id, nil, func() { t.Error("the other copy may be queued") })
	require.Equal(t, 1, withdrawn)
	require.Empty(t, c.served)
}

// leaver is a caller that is gone when its request is committed, before the request is applied.
type leaver struct {
	leave func()
	once  sync.Once
}

func (l *leaver) Applied(_ raftstore.Entry, events []machine.Event) {
	if l.leave != nil && slices.ContainsFunc(events, func(e machine.Event) bool { return e.Type == machine.EventQueued }) {
		l.once.Do(l.leave)
	}
}

func (*leaver) Restored(*machine.Machine) {}

// An attempt whose last caller leaves while it is committed does not stay in the queue.
func TestCallerLeavesBeforeTheCommit(t *testing.T) {
	t.Parallel()
	var l leaver
	s := newTestService(t, func(c *raftstore.Config) { c.Observer = &l })
	_, err := s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", Ttl: "1h"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	l.leave = func() {
		cancel()
		for waits := true; waits; runtime.Gosched() { // until the copy leaves
			waits = false
			s.copies.mu.Lock()
			for _, c := range s.copies.served {
				waits = c.ended == nil
			}
			s.copies.mu.Unlock()
		}
	}
	go func() {
		_, err := s.Acquire(ctx, &pb.AcquireRequest{Resource: "a", Ttl: "1h", Wait: "1h", Attempt: "0123456789abcdef"})
		ended <- err
	}()
	require.ErrorIs(t, <-ended, engine.ErrUncertain)
	status, err := s.router.Node.Inspect(t.Context(), "a", raftstore.Linearizable)
	require.NoError(t, err)
	require.Empty(t, status.Waiters)
}

// fullDisk is a log that fails from a moment on.
type fullDisk struct {
	raft.LogStore
	full atomic.Bool
}

func (d *fullDisk) StoreLogs(logs []*raft.Log) error {
	if d.full.Load() {
		return errors.New("no space left on device")
	}
	return d.LogStore.StoreLogs(logs)
}

func (d *fullDisk) StoreLog(log *raft.Log) error { return d.StoreLogs([]*raft.Log{log}) }

// A call whose wait is over is told that it may still be queued if its member cannot take it out of the queue any more:
// the next leader grants it the lock.
func TestWaitEndsOnAMemberThatFails(t *testing.T) {
	t.Parallel()
	storage := raftstore.MemoryStorage()
	disk := &fullDisk{LogStore: storage.Log}
	storage.Log = disk
	queued := &leaver{leave: func() { disk.full.Store(true) }}
	s := newTestService(t, func(c *raftstore.Config) {
		c.Storage, c.Observer, c.Fatal = storage, queued, func(error) {}
	})
	_, err := s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", Ttl: "1h"})
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", Ttl: "1h", Wait: "3s"}) // time to queue, too
	require.ErrorIs(t, err, engine.ErrUncertain)
}
