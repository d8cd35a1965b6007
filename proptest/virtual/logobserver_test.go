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

// logObserver records the log of the cluster: each entry once, when the first replica
// applies it. Chain hashes show that the other replicas agree.
type logObserver struct {
	history *history

	mu        sync.Mutex
	last      uint64   // index
	first     *replica // that applied it first
	holders   map[fencing.Resource]holder
	granted   map[property.Attempt]int // how often, across restores
	renamed   map[property.Attempt]bool
	restored  int    // number of restored snapshots
	restoring string // the node on which an operator restores one
}

// holder is the holder of a lock in the log. An attempt that is granted again after a
// restore gets a new identity, since the restore discarded its first grant.
type holder struct {
	attempt, known property.Attempt
	token          fencing.Token
}

func newLogObserver(s *history) *logObserver {
	return &logObserver{history: s, holders: map[fencing.Resource]holder{}, granted: map[property.Attempt]int{},
		renamed: map[property.Attempt]bool{}}
}

// replica is the observer of one node.
type replica struct {
	*logObserver
	node string
}

var _ raftstore.Observer = (*replica)(nil)

// Applied records the events of a command.
func (r *replica) Applied(entry raftstore.Entry, events []machine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry.Index < r.last || entry.Index == r.last && r.first != r {
		return
	}
	r.last, r.first = entry.Index, r
	for _, e := range events {
		for _, name := range e.Resources {
			r.see(e, name)
		}
	}
}

// see records one event. The caller holds mu.
func (w *logObserver) see(e machine.Event, name fencing.Resource) {
	h := holder{attempt: attemptOf(e.Session, e.Nonce), token: e.Token}
	kind, note := property.Freed, e.Type.String()
	switch e.Type {
	case machine.EventGranted:
		kind, note = property.Granted, ""
		h.known = h.attempt
		if w.granted[h.attempt]++; w.granted[h.attempt] > 1 && w.restored > 0 {
			h.known = again(h.attempt, h.token)
			w.renamed[h.known] = true
			w.history.record(property.Event{Kind: property.Requested, Who: "log", Resource: name, Attempt: h.known,
				Note: "after a restore"})
		}
		w.holders[name] = h
	case machine.EventReleased, machine.EventExpired, machine.EventBroken:
		if w.holders[name].attempt != h.attempt {
			return // it held before a restore
		}
		h = w.holders[name]
		delete(w.holders, name)
	default:
		return
	}
	w.history.record(property.Event{Kind: kind, Who: "log", Resource: name, Attempt: h.known, Token: h.token, Note: note})
}

// again returns the identity of a grant after a restore.
func again(attempt property.Attempt, token fencing.Token) property.Attempt {
	return property.Attempt(fmt.Sprintf("%s again %d", attempt, token))
}

// name returns the identity of a grant for the property checker.
func (w *logObserver) name(attempt property.Attempt, token fencing.Token) property.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.renamed[again(attempt, token)] {
		return again(attempt, token)
	}
	return attempt
}

// Restored is called when a snapshot replaces the machine, which also happens when a node
// starts or lags. If an operator restored it, holders that are not in it have lost.
func (r *replica) Restored(m *machine.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restoring != r.node {
		return
	}
	r.restoring = ""
	r.restored++
	r.history.forget()
	for name, h := range r.holders {
		if now := m.Inspect(name).Holders; len(now) == 1 && now[0].Token == h.token {
			continue
		}
		delete(r.holders, name)
		r.history.record(property.Event{Kind: property.Freed, Who: "log", Resource: name, Attempt: h.known, Token: h.token,
			Note: "restored"})
	}
}

// expectRestore announces that an operator restores a snapshot on a node, or with "" that
// the restore is over.
func (w *logObserver) expectRestore(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restoring = node
}

// applied records the chain hash of a node.
func (w *logObserver) applied(n *raftstore.Node) {
	chain := n.Status().Chain
	if chain.Index > 0 {
		w.history.record(property.Event{Kind: property.Applied, Who: n.ID(), Index: chain.Index,
			Hash: binary.BigEndian.Uint64(chain.Hash[:8])})
	}
}
