package raftstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/leased-project/leased/raftstore/machine"
)

// Chain is the history of a replica as one hash: of every entry that it has
// applied, where, and what came of it. Replicas with the same chain have the
// same state; two that differ at one index have been told different things, or
// are programs that do different things with them.
type Chain struct {
	// Index is of the last entry with commands.
	Index uint64
	Hash  [sha256.Size]byte
}

// String is the beginning of the hash, for people.
func (c Chain) String() string { return hex.EncodeToString(c.Hash[:linkSize]) }

// next is the chain with one more entry.
func (c Chain) next(index uint64, data []byte, results []machine.Result) Chain {
	h := sha256.New()
	h.Write(c.Hash[:])
	var word [8]byte
	put := func(n uint64) {
		binary.BigEndian.PutUint64(word[:], n)
		h.Write(word[:])
	}
	put(index)
	put(uint64(len(data)))
	h.Write(data)
	for i := range results {
		put(uint64(results[i].Code)<<56 | uint64(results[i].Token))
	}
	next := Chain{Index: index}
	h.Sum(next.Hash[:0])
	return next
}
