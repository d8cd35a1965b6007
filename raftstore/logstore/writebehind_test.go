package logstore_test

import (
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/raftstore/logstore"
)

// steps is a log whose writes wait for a step each.
type steps struct {
	raft.LogStore
	step chan struct{}
}

func (s *steps) StoreLogs(logs []*raft.Log) error {
	<-s.step
	return s.LogStore.StoreLogs(logs)
}

// behind is a WriteBehind whose writes are all early, on a disk that a test steps.
type behind struct {
	*logstore.WriteBehind
	disk    *steps
	stopped chan struct{}
}

func newBehind() *behind {
	b := &behind{disk: &steps{raft.NewInmemStore(), make(chan struct{})}, stopped: make(chan struct{})}
	b.WriteBehind = logstore.NewWriteBehind(b.disk, func([]*raft.Log) bool { return true }, b.stopped)
	go b.Run()
	return b
}

// end stops the log, and lets the remaining writes end.
func (b *behind) end() {
	close(b.stopped)
	close(b.disk.step)
	b.Wait()
}

// store appends entries of a term up to an index.
func (b *behind) store(t require.TestingT, first, last, term uint64) {
	var logs []*raft.Log
	for index := first; index <= last; index++ {
		logs = append(logs, &raft.Log{Index: index, Term: term})
	}
	require.NoError(t, b.StoreLogs(logs))
}

func TestWriteBehindTruncates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind()
		defer b.end()
		b.store(t, 1, 2, 1)
		b.store(t, 3, 4, 1)
		done := false
		go func() {
			require.NoError(t, b.DeleteRange(3, 4))
			done = true
		}()
		synctest.Wait()
		require.False(t, done, "entries that are not on disk are removed after they are")
		b.disk.step <- struct{}{}
		b.disk.step <- struct{}{}
		synctest.Wait()
		require.True(t, done)
		last, err := b.LastIndex()
		require.NoError(t, err)
		require.EqualValues(t, 2, last)
		require.ErrorIs(t, b.GetLog(3, &raft.Log{}), raft.ErrLogNotFound)
		b.store(t, 3, 3, 2)
		var log raft.Log
		require.NoError(t, b.GetLog(3, &log))
		require.EqualValues(t, 2, log.Term)
	})
}

// All waits end when the log stops, although the disk hangs.
func TestWriteBehindStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind()
		b.store(t, 1, 1, 1)
		results := make(chan error, 3)
		go func() { results <- b.Durable(1) }()
		go func() { results <- b.Drain() }()
		go func() { results <- b.DeleteRange(1, 1) }()
		synctest.Wait()
		require.Empty(t, results)
		close(b.stopped)
		for range cap(results) {
			require.Error(t, <-results)
		}
		close(b.disk.step)
		b.Wait()
	})
}

// At every moment an entry is read once it is stored, and Durable has returned only for
// entries that are on the disk: a crash loses no others.
func TestWriteBehindLosesOnlyWhatIsNotDurable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, loseNothingDurable) })
}

func loseNothingDurable(t *rapid.T) {
	b := newBehind()
	defer b.end()
	var last uint64
	durable := make(chan uint64, 30)
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		switch rapid.IntRange(0, 2).Draw(t, "step") {
		case 0:
			n := rapid.Uint64Range(1, 3).Draw(t, "entries")
			b.store(t, last+1, last+n, 1)
			last += n
		case 1: // the disk ends a write, if there is one
			select {
			case b.disk.step <- struct{}{}:
			default:
			}
		case 2:
			if last > 0 {
				index := rapid.Uint64Range(1, last).Draw(t, "index")
				go func() {
					if b.Durable(index) == nil {
						durable <- index
					}
				}()
			}
		}
		synctest.Wait()
		stored, err := b.LastIndex()
		require.NoError(t, err)
		require.Equal(t, last, stored)
		onDisk, err := b.disk.LastIndex()
		require.NoError(t, err)
		for len(durable) > 0 {
			require.LessOrEqual(t, <-durable, onDisk)
		}
		for index := uint64(1); index <= last; index++ {
			require.NoError(t, b.GetLog(index, &raft.Log{}))
		}
	}
}
