package logstore

import (
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// errLogStopped is the result of a wait for a write that never ends: the node has stopped.
var errLogStopped = errors.New("the log has stopped")

// WriteBehind is a log whose writes may end after StoreLogs has returned, so that a leader
// replicates entries while it writes them itself. Reads include entries that are not on disk
// yet. Writes keep their order, and everything but an early StoreLogs waits for those before.
//
// The caller must not count an entry as stored before Durable has returned. See
// docs/adr/0017-leader-writes-beside-replication.md.
type WriteBehind struct {
	log     raft.LogStore
	early   func(logs []*raft.Log) bool
	stopped <-chan struct{}
	work    chan struct{} // has room for one
	ended   chan struct{} // closed when Run has returned

	mu      sync.Mutex
	pending []*write // in their order; Run writes the first
}

// write is a StoreLogs that is not on disk yet.
type write struct {
	logs []*raft.Log
	done chan struct{} // closed when it is on disk
}

var _ raft.MonotonicLogStore = (*WriteBehind)(nil)

// NewWriteBehind returns a WriteBehind on a log that does not return from a failed write (see
// Guard). early decides whether a StoreLogs returns before its write ends. All waits end when
// stopped is closed. The caller must call Run.
func NewWriteBehind(log raft.LogStore, early func(logs []*raft.Log) bool, stopped <-chan struct{}) *WriteBehind {
	return &WriteBehind{log: log, early: early, stopped: stopped, work: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Run writes entries until the log has stopped and nothing is left to write.
func (l *WriteBehind) Run() {
	defer close(l.ended)
	for {
		l.mu.Lock()
		var next *write
		if len(l.pending) > 0 {
			next = l.pending[0]
		}
		l.mu.Unlock()
		if next == nil {
			select {
			case <-l.work:
				continue
			case <-l.stopped:
				return
			}
		}
		if err := l.log.StoreLogs(next.logs); err != nil {
			return // the waits end with the node
		}
		l.mu.Lock()
		l.pending = l.pending[1:]
		l.mu.Unlock()
		close(next.done)
	}
}

// Wait waits for the end of Run.
func (l *WriteBehind) Wait() { <-l.ended }

// Durable waits until an entry is on disk. It returns an error if the log has stopped before.
func (l *WriteBehind) Durable(index uint64) error {
	return l.await(func(w *write) bool { return w.logs[0].Index <= index })
}

// Drain waits until all entries are on disk. It returns an error if the log has stopped
// before.
func (l *WriteBehind) Drain() error { return l.await(func(*write) bool { return true }) }

// await waits for the last of the pending writes that match.
func (l *WriteBehind) await(matches func(w *write) bool) error {
	l.mu.Lock()
	var last *write
	for _, w := range slices.Backward(l.pending) {
		if matches(w) {
			last = w
			break
		}
	}
	l.mu.Unlock()
	if last == nil {
		return nil
	}
	select {
	case <-last.done:
		return nil
	case <-l.stopped:
		return errLogStopped
	}
}

// IsMonotonic reports whether the log must have no gaps.
func (l *WriteBehind) IsMonotonic() bool {
	m, ok := l.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// FirstIndex returns the index of the first entry.
func (l *WriteBehind) FirstIndex() (uint64, error) { return l.log.FirstIndex() }

// LastIndex returns the index of the last entry, on disk or not.
func (l *WriteBehind) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.pending); n > 0 {
		logs := l.pending[n-1].logs
		return logs[len(logs)-1].Index, nil
	}
	return l.log.LastIndex()
}

// GetLog reads an entry, on disk or not.
func (l *WriteBehind) GetLog(index uint64, log *raft.Log) error {
	l.mu.Lock()
	for _, w := range l.pending {
		if first := w.logs[0].Index; index >= first && index-first < uint64(len(w.logs)) {
			*log = *w.logs[index-first]
			l.mu.Unlock()
			return nil
		}
	}
	l.mu.Unlock()
	return l.log.GetLog(index, log)
}

// StoreLog stores one entry, as StoreLogs does.
func (l *WriteBehind) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries. Unless early says otherwise, they are on disk when it returns.
func (l *WriteBehind) StoreLogs(logs []*raft.Log) error {
	if !l.early(logs) {
		if err := l.Drain(); err != nil {
			return err
		}
		return l.log.StoreLogs(logs)
	}
	l.mu.Lock()
	l.pending = append(l.pending, &write{logs: logs, done: make(chan struct{})})
	l.mu.Unlock()
	select {
	case l.work <- struct{}{}:
	default:
	}
	return nil
}

// DeleteRange removes entries.
func (l *WriteBehind) DeleteRange(min, max uint64) error {
	if err := l.Drain(); err != nil {
		return err
	}
	return l.log.DeleteRange(min, max)
}
