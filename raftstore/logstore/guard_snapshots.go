package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// snapshotPiece is the number of bytes of a snapshot that are written under one
	// deadline: a large snapshot takes long even on a healthy disk.
	snapshotPiece = 1 << 20
	// slowestDisk, in bytes per second, extends the deadline when a snapshot is synced.
	slowestDisk = 8 << 20
)

// Snapshots guards snapshots. The Raft library would continue after a failed snapshot, on a
// disk in an unknown state.
func (g *Guard) Snapshots(store raft.SnapshotStore) raft.SnapshotStore {
	return &guardedSnapshots{g, store}
}

type guardedSnapshots struct {
	guard *Guard
	store raft.SnapshotStore
}

// Create starts a snapshot.
func (s *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	var sink raft.SnapshotSink
	s.guard.timed("begin snapshot", func() (err error) {
		sink, err = s.store.Create(version, index, term, configuration, configurationIndex, trans)
		return err
	})
	return &guardedSink{guard: s.guard, sink: sink}, nil
}

// List lists the snapshots, newest first.
func (s *guardedSnapshots) List() (list []*raft.SnapshotMeta, err error) {
	s.guard.timed("list snapshots", func() error {
		list, err = s.store.List()
		return err
	})
	return list, nil
}

// Open opens a snapshot. A snapshot that does not exist, or not any more, is not a failure.
func (s *guardedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, source, err := s.store.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	s.guard.check("open snapshot "+id, err)
	return meta, &guardedSource{s.guard, source}, nil
}

type guardedSource struct {
	guard  *Guard
	source io.ReadCloser
}

// Read reads a piece of the snapshot.
func (s *guardedSource) Read(p []byte) (int, error) {
	n, err := s.source.Read(p)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	s.guard.check("read snapshot", err)
	return n, nil
}

// Close closes the file.
func (s *guardedSource) Close() error { return s.source.Close() }

type guardedSink struct {
	guard   *Guard
	sink    raft.SnapshotSink
	written int
}

// ID returns the name of the snapshot.
func (s *guardedSink) ID() string { return s.sink.ID() }

// Write writes a piece of the snapshot.
func (s *guardedSink) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		piece := p[:min(len(p), snapshotPiece)]
		s.guard.timed("write snapshot", func() error {
			n, err := s.sink.Write(piece)
			if err == nil && n < len(piece) {
				err = fmt.Errorf("%w: %d of %d bytes", io.ErrShortWrite, n, len(piece))
			}
			return err
		})
		written += len(piece)
		p = p[len(piece):]
	}
	s.written += written
	return written, nil
}

// Close makes the snapshot durable.
func (s *guardedSink) Close() error {
	s.guard.within(s.guard.deadline+time.Duration(s.written)*time.Second/slowestDisk, "sync snapshot", s.sink.Close)
	return nil
}

// Cancel abandons the snapshot.
func (s *guardedSink) Cancel() error {
	s.guard.timed("remove snapshot", s.sink.Cancel)
	return nil
}
