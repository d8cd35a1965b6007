package virtual

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// witness tells the judge the log of the cluster: each entry once, when the
// first replica applies it. That the others do the same with it is what the
// chain hashes show.
type witness struct {
	story *story

	mu        sync.Mutex
	last      uint64   // index
	first     *replica // who applied it first
	holders   map[fencing.Resource]holder
	granted   map[property.Attempt]int // how often, with restores in between
	renamed   map[property.Attempt]bool
	restored  int    // how often a snapshot was restored
	restoring string // the node on which an operator does so
}

// holder is who holds a lock by the log. The judge knows an attempt that was
// granted again after a restore by another name: that its first grant is
// forgotten is what a restore is.
type holder struct {
	attempt, known property.Attempt
	token          fencing.Token
}

func newWitness(s *story) *witness {
	return &witness{story: s, holders: map[fencing.Resource]holder{}, granted: map[property.Attempt]int{}, renamed: map[property.Attempt]bool{}}
}

// replica is the witness at one life of a node.
type replica struct {
	*witness
	node string
}

var _ raftstore.Observer = (*replica)(nil)

// Applied hears of a command.
func (r *replica) Applied(index uint64, events []machine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index < r.last || index == r.last && r.first != r {
		return
	}
	r.last, r.first = index, r
	for _, e := range events {
		for _, name := range e.Resources {
			r.see(e, name)
		}
	}
}

// see tells one event. The caller holds mu.
func (w *witness) see(e machine.Event, name fencing.Resource) {
	h := holder{attempt: attemptOf(e.Session, e.Nonce), token: e.Token}
	kind, note := property.Freed, e.Type.String()
	switch e.Type {
	case machine.EventGranted:
		kind, note = property.Granted, ""
		h.known = h.attempt
		if w.granted[h.attempt]++; w.granted[h.attempt] > 1 && w.restored > 0 {
			h.known = again(h.attempt, h.token)
			w.renamed[h.known] = true
			w.story.tell(property.Event{Kind: property.Requested, Who: "log", Resource: name, Attempt: h.known, Note: "in the snapshot"})
		}
		w.holders[name] = h
	case machine.EventReleased, machine.EventExpired, machine.EventBroken:
		if w.holders[name].attempt != h.attempt {
			return // it held before a snapshot was restored, and is not known since
		}
		h = w.holders[name]
		delete(w.holders, name)
	default:
		return
	}
	w.story.tell(property.Event{Kind: kind, Who: "log", Resource: name, Attempt: h.known, Token: h.token, Note: note})
}

// again is the name of a grant that an attempt got after a restore.
func again(attempt property.Attempt, token fencing.Token) property.Attempt {
	return property.Attempt(fmt.Sprintf("%s again %d", attempt, token))
}

// name is how the judge knows a grant that a client was told of.
func (w *witness) name(attempt property.Attempt, token fencing.Token) property.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.renamed[again(attempt, token)] {
		return again(attempt, token)
	}
	return attempt
}

// Restored hears that the machine was replaced. That happens to every node that
// is opened or far behind; when an operator does it, who is not in the snapshot
// holds no more.
func (r *replica) Restored(m *machine.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restoring != r.node {
		return
	}
	r.restoring = ""
	r.restored++
	r.story.forget()
	for name, h := range r.holders {
		if now := m.Inspect(name).Holders; len(now) == 1 && now[0].Token == h.token {
			continue
		}
		delete(r.holders, name)
		r.story.tell(property.Event{Kind: property.Freed, Who: "log", Resource: name, Attempt: h.known, Token: h.token, Note: "restored"})
	}
}

// expectRestore says that an operator restores a snapshot on a node, or, with
// "", does so no more.
func (w *witness) expectRestore(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restoring = node
}

// applied tells how far a node is.
func (w *witness) applied(n *raftstore.Node) {
	chain := n.Status().Chain
	if chain.Index > 0 {
		w.story.tell(property.Event{Kind: property.Applied, Who: n.ID(), Index: chain.Index, Hash: binary.BigEndian.Uint64(chain.Hash[:8])})
	}
}
