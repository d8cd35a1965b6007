package virtual

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore"
)

var errCrashed = errors.New("the machine has crashed")

// disk is what a node keeps: it outlives the node. A write can take long, and
// after a crash nothing more of the node's earlier life reaches it.
type disk struct {
	*raftstore.Storage
	snapshots snapshots

	mu   sync.Mutex
	life int
	slow time.Duration
}

func newDisk() *disk { return &disk{Storage: raftstore.MemoryStorage()} }

// setSlow makes every write take so long.
func (d *disk) setSlow(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}

// crash ends the present life.
func (d *disk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life++
	d.slow = 0
}

// open begins a life.
func (d *disk) open() *raftstore.Storage {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &head{disk: d, life: d.life}
	return &raftstore.Storage{Log: &diskLog{d.Log, h}, Stable: &diskStable{d.Stable, h}, Snapshots: &diskSnapshots{&d.snapshots, h}, Close: func() error { return nil }}
}

// head is the way of one life to the disk.
type head struct {
	disk *disk
	life int
}

// write does what changes the disk, if the life lasts.
func (h *head) write(do func() error) error {
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
	head *head
}

// StoreLog appends an entry.
func (l *diskLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries.
func (l *diskLog) StoreLogs(logs []*raft.Log) error {
	return l.head.write(func() error { return l.LogStore.StoreLogs(logs) })
}

// DeleteRange removes entries.
func (l *diskLog) DeleteRange(low, high uint64) error {
	return l.head.write(func() error { return l.LogStore.DeleteRange(low, high) })
}

type diskStable struct {
	raft.StableStore
	head *head
}

// Set keeps a value.
func (s *diskStable) Set(key, value []byte) error {
	return s.head.write(func() error { return s.StableStore.Set(key, value) })
}

// SetUint64 keeps a number.
func (s *diskStable) SetUint64(key []byte, value uint64) error {
	return s.head.write(func() error { return s.StableStore.SetUint64(key, value) })
}
