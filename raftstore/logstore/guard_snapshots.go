package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// snapshotPiece is the number of bytes of a snapshot that are written under one
	// deadline: a large snapshot takes long even on a healthy disk.
	snapshotPiece = 1 << 20
	// slowestDisk, in bytes per second, extends the deadline when a snapshot is synced.
	slowestDisk = 8 << 20
	// nameResolution is longer than the difference of two names of snapshots of one index,
	// which are times in milliseconds.
	nameResolution = 2 * time.Millisecond
)

// Snapshots guards snapshots. The Raft library would continue after a failed snapshot, on a
// disk in an unknown state.
func (g *Guard) Snapshots(store raft.SnapshotStore) raft.SnapshotStore {
	return &guardedSnapshots{guard: g, store: store, creating: make(chan struct{}, 1)}
}

type guardedSnapshots struct {
	guard *Guard
	store raft.SnapshotStore

	// creating is a semaphore: one snapshot is created at a time. It is a channel because Create sleeps while it holds
	// it, and in a synctest bubble the clock stops while a goroutine is blocked on a mutex.
	creating chan struct{}
}

func (s *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink := &guardedSink{guard: s.guard, started: stopwatch.Now()}
	return sink, s.guard.timed("begin snapshot", func() (err error) {
		s.creating <- struct{}{}
		defer func() { <-s.creating }()
		time.Sleep(nameResolution) // a snapshot of the leader and one's own may have the same index
		sink.SnapshotSink, err = s.store.Create(version, index, term, configuration, configurationIndex, trans)
		return err
	})
}

func (s *guardedSnapshots) List() (list []*raft.SnapshotMeta, err error) {
	err = s.guard.timed("list snapshots", func() (err error) {
		list, err = s.store.List()
		return err
	})
	return list, err
}

// Open opens a snapshot. A snapshot that does not exist, or not any more, is not a failure.
func (s *guardedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, source, err := s.store.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	s.guard.check("open snapshot "+id, err)
	return meta, &guardedSource{source, s.guard}, nil
}

type guardedSource struct {
	io.ReadCloser
	guard *Guard
}

func (s *guardedSource) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrClosed) { // its sender gave up while a reader went on
		return n, err
	}
	s.guard.check("read snapshot", err)
	return n, nil
}

type guardedSink struct {
	raft.SnapshotSink
	guard   *Guard
	started engine.Instant
	written int64
}

func (s *guardedSink) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		piece := p[:min(len(p), snapshotPiece)]
		_ = s.guard.timed("write snapshot", func() error {
			n, err := s.SnapshotSink.Write(piece)
			if err == nil && n < len(piece) {
				err = fmt.Errorf("%w: %d of %d bytes", io.ErrShortWrite, n, len(piece))
			}
			return err
		})
		written += len(piece)
		p = p[len(piece):]
	}
	s.written += int64(written)
	return written, nil
}

func (s *guardedSink) Close() error {
	err := s.guard.within(s.guard.deadline+time.Duration(s.written)*time.Second/slowestDisk, "sync snapshot",
		s.SnapshotSink.Close)
	if s.guard.Snapshot != nil {
		s.guard.Snapshot(stopwatch.Now().Since(s.started), s.written)
	}
	return err
}

func (s *guardedSink) Cancel() error {
	return s.guard.timed("remove snapshot", s.SnapshotSink.Cancel)
}
