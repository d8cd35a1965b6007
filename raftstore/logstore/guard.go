package logstore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

// ErrStalled means that a write took longer than the deadline.
var ErrStalled = errors.New("disk is stalled")

// Guard ends the node when its store fails or stalls. The Raft library would continue: a
// leader whose write fails becomes a follower on the same store, and a leader whose disk
// hangs keeps leading, because its heartbeats need no disk (hashicorp/raft 503). After a
// failed sync the store may even return data that is not on disk.
type Guard struct {
	// Stored, if not nil, is called after entries were written, with the time of the write and
	// its fsync.
	Stored func(took time.Duration)
	// Snapshot, if not nil, is called after a snapshot was written.
	Snapshot func(took time.Duration, bytes int64)

	deadline time.Duration
	fatal    func(error)
	failed   atomic.Bool
}

// stopwatch measures writes.
var stopwatch = engine.MonotonicClock()

// NewGuard returns a Guard with this deadline for writes. fatal ends the process. If it
// returns, as in tests, the goroutine that got the error ends instead, so that nothing
// depends on the failed write.
func NewGuard(deadline time.Duration, fatal func(error)) *Guard {
	return &Guard{deadline: deadline, fatal: fatal}
}

func (g *Guard) fail(err error) {
	g.failed.Store(true)
	g.fatal(err)
}

// check ends the calling goroutine if the store has failed, now or earlier.
func (g *Guard) check(what string, err error) {
	if err != nil {
		g.fail(fmt.Errorf("%s: %w; the node stops and must restart from disk", what, err))
	}
	if g.failed.Load() {
		runtime.Goexit()
	}
}

// timed runs a write with the deadline. It returns nil, or not at all.
func (g *Guard) timed(what string, write func() error) error {
	return g.within(g.deadline, what, write)
}

// deadlineSteps is the number of timers in one deadline. A process that was paused for long finds only one of them
// expired, and the disk has the time of the others to answer.
const deadlineSteps = 8

// within runs a write with another deadline.
func (g *Guard) within(limit time.Duration, what string, write func() error) error {
	var mu sync.Mutex // guards the variables below
	left, ended := deadlineSteps, false
	var timer *time.Timer
	mu.Lock()
	timer = time.AfterFunc(limit/deadlineSteps, func() {
		mu.Lock()
		defer mu.Unlock()
		switch left--; {
		case ended:
		case left > 0:
			timer.Reset(limit / deadlineSteps)
		default:
			g.fail(fmt.Errorf("%s: %w: no answer for %v; the node stops, so that another can lead", what, ErrStalled, limit))
		}
	})
	mu.Unlock()
	err := write()
	mu.Lock()
	ended = true
	timer.Stop()
	mu.Unlock()
	g.check(what, err)
	return nil
}

// Log guards a log.
func (g *Guard) Log(log raft.LogStore) raft.LogStore { return &guardedLog{g, log} }

// Stable guards votes and terms.
func (g *Guard) Stable(stable raft.StableStore) raft.StableStore { return &guardedStable{g, stable} }

type guardedLog struct {
	guard *Guard
	log   raft.LogStore
}

var _ raft.MonotonicLogStore = (*guardedLog)(nil)

func (l *guardedLog) IsMonotonic() bool {
	m, ok := l.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (l *guardedLog) FirstIndex() (uint64, error) {
	index, err := l.log.FirstIndex()
	l.guard.check("read log", err)
	return index, nil
}

func (l *guardedLog) LastIndex() (uint64, error) {
	index, err := l.log.LastIndex()
	l.guard.check("read log", err)
	return index, nil
}

// GetLog reads an entry. A missing entry is not a failure.
func (l *guardedLog) GetLog(index uint64, log *raft.Log) error {
	err := l.log.GetLog(index, log)
	if errors.Is(err, raft.ErrLogNotFound) {
		return raft.ErrLogNotFound
	}
	l.guard.check(fmt.Sprintf("read log entry %d", index), err)
	return nil
}

func (l *guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs writes entries. They are on disk when it returns.
func (l *guardedLog) StoreLogs(logs []*raft.Log) error {
	started := stopwatch.Now()
	err := l.guard.timed("write log", func() error { return l.log.StoreLogs(logs) })
	if l.guard.Stored != nil {
		l.guard.Stored(stopwatch.Now().Since(started))
	}
	return err
}

func (l *guardedLog) DeleteRange(min, max uint64) error {
	return l.guard.timed("truncate log", func() error { return l.log.DeleteRange(min, max) })
}

type guardedStable struct {
	guard  *Guard
	stable raft.StableStore
}

func (s *guardedStable) Set(key, value []byte) error {
	return s.guard.timed("write vote", func() error { return s.stable.Set(key, value) })
}

func (s *guardedStable) SetUint64(key []byte, value uint64) error {
	return s.guard.timed("write term", func() error { return s.stable.SetUint64(key, value) })
}

func (s *guardedStable) Get(key []byte) ([]byte, error) {
	value, err := s.stable.Get(key)
	if notFound(err) {
		return nil, errNotFound
	}
	s.guard.check("read vote", err)
	return value, nil
}

func (s *guardedStable) GetUint64(key []byte) (uint64, error) {
	value, err := s.stable.GetUint64(key)
	if notFound(err) {
		return 0, errNotFound
	}
	s.guard.check("read term", err)
	return value, nil
}

// errNotFound has the text that the Raft library expects.
var errNotFound = errors.New("not found")

// notFound compares texts because the contract of raft.StableStore requires it: each store
// has its own error value.
func notFound(err error) bool { return err != nil && err.Error() == errNotFound.Error() }
