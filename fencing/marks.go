package fencing

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// shardCount spreads the inserts. It is a power of two.
const shardCount = 64

var hashSeed = maphash.MakeSeed()

// marks maps resources to their marks. Marks are only ever added, which allows
// look-ups that write to no shared memory: they scale over cores, where even a
// read lock would have all of them take turns at its counter.
type marks struct {
	shards [shardCount]shard
}

// shard is a hash table with open addressing. Readers follow table and the
// entries without a lock; writers hold mu.
type shard struct {
	table atomic.Pointer[[]atomic.Pointer[mark]]
	mu    sync.Mutex
	used  int
}

// mark is the newest token admitted for a resource. Name and token each fill a
// cache line: a core that raises a mark must not slow down those that raise its
// neighbours, or that pass by its name while probing.
type mark struct {
	resource Resource
	_        [48]byte
	token    atomic.Uint64
	_        [56]byte
}

// find returns the mark of the resource, nil if it has none.
func (m *marks) find(resource Resource) *mark {
	hash := maphash.String(hashSeed, string(resource))
	table := m.shards[hash%shardCount].table.Load()
	if table == nil {
		return nil
	}
	return (*table)[probe(*table, resource, hash)].Load()
}

// add returns the mark of the resource, a new one at None if it had none.
func (m *marks) add(resource Resource) *mark {
	hash := maphash.String(hashSeed, string(resource))
	s := &m.shards[hash%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	table := s.roomy()
	slot := &table[probe(table, resource, hash)]
	if found := slot.Load(); found != nil {
		return found
	}
	added := &mark{resource: resource}
	slot.Store(added)
	s.used++
	return added
}

// roomy returns a table with at least a quarter of its slots free, so that a
// probe always ends. A reader that still has the old table misses at most what
// is added from now on, and then calls add. The caller holds mu.
func (s *shard) roomy() []atomic.Pointer[mark] {
	const smallest = 8
	old := s.table.Load()
	if old == nil {
		table := make([]atomic.Pointer[mark], smallest)
		s.table.Store(&table)
		return table
	}
	if 4*(s.used+1) <= 3*len(*old) {
		return *old
	}
	table := make([]atomic.Pointer[mark], 2*len(*old))
	for i := range *old {
		if m := (*old)[i].Load(); m != nil {
			hash := maphash.String(hashSeed, string(m.resource))
			table[probe(table, m.resource, hash)].Store(m)
		}
	}
	s.table.Store(&table)
	return table
}

// probe is the index of the slot that holds the resource, or of the free slot
// where it belongs.
func probe(table []atomic.Pointer[mark], resource Resource, hash uint64) uint64 {
	mask := uint64(len(table) - 1)
	for i := (hash / shardCount) & mask; ; i = (i + 1) & mask {
		if m := table[i].Load(); m == nil || m.resource == resource {
			return i
		}
	}
}
