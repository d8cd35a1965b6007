package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/leased-project/leased/raftstore/machine"
)

// Chain is the history of a replica as one hash: of every entry that it has
// applied, its index, and its results and events. Replicas with the same chain
// have the same state. Two chains that differ at one index mean that the replicas
// got different entries, or run programs that apply them differently.
type Chain struct {
	// Index is the index of the last entry that the machine applied.
	Index uint64
	Hash  [sha256.Size]byte
}

// String returns the beginning of the hash in hexadecimal.
func (c Chain) String() string { return hex.EncodeToString(c.Hash[:linkSize]) }

// chainHasher computes the chain after one more entry.
type chainHasher struct {
	index  uint64
	hash   hash.Hash
	buffer []byte // not yet hashed
}

// hashBuffer is how much chainHasher collects before it hashes.
const hashBuffer = 512

// next starts the hash of the entry after c.
func (c Chain) next(index uint64, data []byte) *chainHasher {
	h := &chainHasher{index: index, hash: sha256.New(), buffer: make([]byte, 0, hashBuffer)}
	h.hash.Write(c.Hash[:])
	h.put(index, uint64(len(data)))
	h.flush()
	h.hash.Write(data)
	return h
}

// add hashes the result and the events of one command of the entry.
func (h *chainHasher) add(r machine.Result, events []machine.Event) {
	h.put(uint64(r.Code), uint64(r.Token), uint64(r.Slot), uint64(r.Mode), r.Generation, r.Version, r.Incarnation,
		uint64(len(events)))
	for i := range events {
		e := &events[i]
		h.buffer = append(h.buffer, e.Session[:]...)
		h.put(uint64(e.Type), uint64(e.Nonce), uint64(e.Token), uint64(e.Slot), e.DelayID)
	}
}

func (h *chainHasher) put(words ...uint64) {
	for _, w := range words {
		h.buffer = binary.AppendUvarint(h.buffer, w)
	}
	if len(h.buffer) > hashBuffer*3/4 {
		h.flush()
	}
}

func (h *chainHasher) flush() {
	h.hash.Write(h.buffer)
	h.buffer = h.buffer[:0]
}

// chain returns the chain after the entry.
func (h *chainHasher) chain() Chain {
	h.flush()
	next := Chain{Index: h.index}
	h.hash.Sum(next.Hash[:0])
	return next
}
