package raftstore

import (
	"fmt"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// hub passes on what happens in this replica's machine: to those who wait for a
// lock, those who hold one, and those who watch one.
type hub struct {
	mu       sync.Mutex
	turns    map[attempt]*turn
	holders  map[engine.SessionID]map[*listener]*registration
	watchers map[fencing.Resource]map[*watcher]bool
}

// attempt is the identity of an Acquire.
type attempt struct {
	session     engine.SessionID
	incarnation uint64
	nonce       engine.Nonce
}

// turn is what the callers who wait for one attempt are told.
type turn struct {
	ready  chan struct{} // closed when result or err is set
	result machine.Result
	err    error
	users  int
}

// watcher is one call of Watch. changed has room for one.
type watcher struct{ changed chan struct{} }

func newHub() *hub {
	return &hub{turns: map[attempt]*turn{}, holders: map[engine.SessionID]map[*listener]*registration{}, watchers: map[fencing.Resource]map[*watcher]bool{}}
}

// expect registers someone who will wait. It comes before the proposal: the
// turn may come with it.
func (h *hub) expect(a attempt) *turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.turns[a]
	if t == nil {
		t = &turn{ready: make(chan struct{})}
		h.turns[a] = t
	}
	t.users++
	return t
}

// leave is the other end of expect.
func (h *hub) leave(a attempt, t *turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.users--; t.users == 0 && h.turns[a] == t {
		delete(h.turns, a)
	}
}

// answer tells those who wait. The caller holds mu.
func (h *hub) answer(a attempt, result machine.Result, err error) {
	if t := h.turns[a]; t != nil {
		t.result, t.err = result, err
		delete(h.turns, a)
		close(t.ready)
	}
}

func (h *hub) watch(resource fencing.Resource, w *watcher) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers[resource] == nil {
		h.watchers[resource] = map[*watcher]bool{}
	}
	h.watchers[resource][w] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers[resource], w)
		if len(h.watchers[resource]) == 0 {
			delete(h.watchers, resource)
		}
	}
}

func (w *watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// pass hands on the events of one command, and returns the calls into other
// people's code, which are made without a lock.
func (h *hub) pass(c machine.Command, events []machine.Event, m *machine.Machine) (later []func()) {
	if len(events) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := false
	for i := range events {
		e := &events[i]
		if len(h.watchers) > 0 {
			for _, name := range e.Resources {
				for w := range h.watchers[name] {
					w.notify()
				}
			}
		}
		a := attempt{e.Session, e.Incarnation, e.Nonce}
		switch e.Type {
		case machine.EventGranted:
			h.answer(a, machine.Result{Code: machine.Granted, Token: e.Token, Slot: e.Slot, Mode: e.Mode}, nil)
			last = last || e.Token == fencing.MaxToken
		case machine.EventCancelled:
			result, err := cancelled(c, e, m)
			h.answer(a, result, err)
		case machine.EventExpired:
			later = append(later, h.losses(a, engine.ErrExpired)...)
		case machine.EventBroken:
			later = append(later, h.losses(a, broken(c))...)
		}
	}
	if last {
		h.dismiss()
	}
	return later
}

// exhausted tells all who wait that no token is left.
func (h *hub) exhausted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dismiss()
}

// dismiss is exhausted. The caller holds mu.
func (h *hub) dismiss() {
	for a := range h.turns {
		h.answer(a, machine.Result{Code: machine.Exhausted}, nil)
	}
}

// cancelled is why a waiter left the queue: it was released, its lock is moving,
// or its session has ended.
func cancelled(c machine.Command, e *machine.Event, m *machine.Machine) (machine.Result, error) {
	switch c.(type) {
	case *machine.Release:
		return machine.Result{}, fmt.Errorf("%w: attempt %d was released", engine.ErrHeld, e.Nonce)
	case *machine.SetPolicy, *machine.DeletePolicy:
		return m.Routable(e.Resources), nil
	}
	return machine.Result{}, engine.ErrExpired
}

// broken is why a holder was broken.
func broken(c machine.Command) error {
	switch c.(type) {
	case *machine.SetPolicy, *machine.DeletePolicy:
		return fmt.Errorf("%w: an operator moved the lock to efficiency mode without waiting for its holders", engine.ErrTaken)
	}
	return fmt.Errorf("%w: broken by an operator", engine.ErrTaken)
}

// restored catches up on what nobody was told while the state was replaced by a
// snapshot: holders that the new state does not know have lost, waiters that it
// has granted have won, and everyone who watches looks again.
func (h *hub) restored(old, now *machine.Machine) (later []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.holders {
		_, requests, _ := old.Session(id)
		for _, r := range requests {
			a := attempt{id, old.SessionInfo(id).Incarnation, r.Party.Nonce}
			if r.Party.Token != fencing.None && now.Attempt(id, a.incarnation, a.nonce).Token != r.Party.Token {
				later = append(later, h.losses(a, fmt.Errorf("%w: the service was restored from a snapshot without it", engine.ErrNotHeld))...)
			}
		}
	}
	h.sweep(now)
	for a := range h.turns {
		switch result := prospect(now, a); result.Code {
		case machine.Queued:
		case machine.Granted, machine.Exhausted:
			h.answer(a, result, nil)
		case machine.NoSession:
			h.answer(a, machine.Result{}, engine.ErrExpired)
		default:
			h.answer(a, machine.Result{}, fmt.Errorf("%w: the service was restored from a snapshot; ask again", engine.ErrUncertain))
		}
	}
	for _, watchers := range h.watchers {
		for w := range watchers {
			w.notify()
		}
	}
	return later
}
