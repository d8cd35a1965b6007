package virtual

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// snapshots keeps the last complete snapshot of a disk. The in-memory store of the Raft
// library also lists incomplete ones, so that a node could not start after a crash.
type snapshots struct {
	mu   sync.Mutex
	made int
	meta raft.SnapshotMeta
	data []byte // nil if there is none
}

// count returns the number of snapshots ever started.
func (s *snapshots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// diskSnapshots is the access of one node to them.
type diskSnapshots struct {
	*snapshots
	handle *handle
}

var _ raft.SnapshotStore = (*diskSnapshots)(nil)

// Create begins a snapshot.
func (s *diskSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return &sink{store: s, meta: raft.SnapshotMeta{Version: version, ID: fmt.Sprint(term, "-", index, "-", s.made),
		Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex}}, nil
}

// List returns the last one.
func (s *diskSnapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		return nil, nil
	}
	meta := s.meta
	return []*raft.SnapshotMeta{&meta}, nil
}

// Open opens it.
func (s *diskSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil || s.meta.ID != id {
		return nil, nil, errors.New("no such snapshot")
	}
	meta := s.meta
	return &meta, io.NopCloser(bytes.NewReader(s.data)), nil
}

// sink is a snapshot that is being written.
type sink struct {
	bytes.Buffer
	store *diskSnapshots
	meta  raft.SnapshotMeta
	over  bool
}

// ID returns its id.
func (s *sink) ID() string { return s.meta.ID }

// Cancel discards it.
func (s *sink) Cancel() error {
	s.over = true
	return nil
}

// Close makes it the last complete snapshot, unless the node has crashed.
func (s *sink) Close() error {
	if s.over {
		return nil
	}
	s.over = true
	return s.store.handle.write(func() error {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		s.meta.Size = int64(s.Len())
		s.store.meta, s.store.data = s.meta, append([]byte{}, s.Bytes()...)
		return nil
	})
}
