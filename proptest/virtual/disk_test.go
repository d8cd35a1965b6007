package virtual

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore"
)

var errCrashed = errors.New("the host has crashed")

// disk is the disk of a host, which survives a crash of its node. A write can be slow.
// Writes of a crashed node fail.
type disk struct {
	*raftstore.Storage
	snapshots snapshots

	mu   sync.Mutex
	life int
	slow time.Duration
}

func newDisk() *disk { return &disk{Storage: raftstore.MemoryStorage()} }

// setSlow sets the duration of every write.
func (d *disk) setSlow(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}

// crash makes the writes of the running node fail.
func (d *disk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life++
	d.slow = 0
}

// open returns the storage of a new node.
func (d *disk) open() *raftstore.Storage {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &handle{disk: d, life: d.life}
	return &raftstore.Storage{Log: &diskLog{d.Log, h}, Stable: &diskStable{d.Stable, h},
		Snapshots: &diskSnapshots{&d.snapshots, h}, Close: func() error { return nil }}
}

// handle is the access of one node to the disk.
type handle struct {
	disk *disk
	life int
}

// write changes the disk, unless the node has crashed.
func (h *handle) write(do func() error) error {
	h.disk.mu.Lock()
	slow := h.disk.slow
	h.disk.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if h.disk.life != h.life {
		return errCrashed
	}
	return do()
}

type diskLog struct {
	raft.LogStore
	handle *handle
}

// StoreLog appends an entry.
func (l *diskLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries.
func (l *diskLog) StoreLogs(logs []*raft.Log) error {
	return l.handle.write(func() error { return l.LogStore.StoreLogs(logs) })
}

// DeleteRange removes entries.
func (l *diskLog) DeleteRange(low, high uint64) error {
	return l.handle.write(func() error { return l.LogStore.DeleteRange(low, high) })
}

type diskStable struct {
	raft.StableStore
	handle *handle
}

// Set stores a value.
func (s *diskStable) Set(key, value []byte) error {
	return s.handle.write(func() error { return s.StableStore.Set(key, value) })
}

// SetUint64 stores a number.
func (s *diskStable) SetUint64(key []byte, value uint64) error {
	return s.handle.write(func() error { return s.StableStore.SetUint64(key, value) })
}
