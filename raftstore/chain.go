package raftstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

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

// linking makes the chain with one more entry.
type linking struct {
	index uint64
	hash  hash.Hash
	words []byte // of what has happened, not yet hashed
}

// linkingWords is how much is collected before it is hashed.
const linkingWords = 512

// begin takes the entry itself.
func (c Chain) begin(index uint64, data []byte) *linking {
	l := &linking{index: index, hash: sha256.New(), words: make([]byte, 0, linkingWords)}
	l.hash.Write(c.Hash[:])
	l.put(index, uint64(len(data)))
	l.flush()
	l.hash.Write(data)
	return l
}

// add takes what one command of the entry has come to: its result, and what
// happened to others, such as who was handed a lock that was released.
func (l *linking) add(r machine.Result, events []machine.Event) {
	l.put(uint64(r.Code), uint64(r.Token), uint64(r.Slot), uint64(r.Mode), r.Generation, r.Version, r.Incarnation, uint64(len(events)))
	if r.Range != nil {
		l.put(uint64(r.Range.Floor), uint64(r.Range.Ceiling))
	}
	for i := range events {
		e := &events[i]
		l.words = append(l.words, e.Session[:]...)
		l.put(uint64(e.Type), uint64(e.Nonce), uint64(e.Token), uint64(e.Slot), e.DelayID)
	}
}

func (l *linking) put(words ...uint64) {
	for _, w := range words {
		l.words = binary.AppendUvarint(l.words, w)
	}
	if len(l.words) > linkingWords*3/4 {
		l.flush()
	}
}

func (l *linking) flush() {
	l.hash.Write(l.words)
	l.words = l.words[:0]
}

// end is the new chain.
func (l *linking) end() Chain {
	l.flush()
	next := Chain{Index: l.index}
	l.hash.Sum(next.Hash[:0])
	return next
}
