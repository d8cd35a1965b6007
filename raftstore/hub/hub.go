package hub

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Hub notifies waiters, holders and watchers of the changes in one replica. All methods
// may be called concurrently; the caller of Applied, Restored and Identify holds the lock
// of the machine.
type Hub struct {
	mu        sync.Mutex
	waiting   map[Attempt][]*Wait
	listeners map[engine.SessionID]map[*Listener]*registration
	watchers  map[fencing.Resource]map[Watcher]bool
	waits     atomic.Int64 // the number of waiters
}

// New returns an empty Hub.
func New() *Hub {
	return &Hub{waiting: map[Attempt][]*Wait{}, listeners: map[engine.SessionID]map[*Listener]*registration{},
		watchers: map[fencing.Resource]map[Watcher]bool{}}
}

// Wait is one caller that waits for an attempt.
type Wait struct {
	Result machine.Result
	Err    error
	// Arrived is when the command that ended the wait arrived at this node, zero if that
	// is unknown.
	Arrived engine.Instant

	ended func(*Wait)
}

// NewWait returns a Wait for Expect. The hub calls ended once, when the wait ends, unless
// Leave was called before.
func NewWait(ended func(*Wait)) *Wait { return &Wait{ended: ended} }

// Expect registers a caller that waits for an attempt. Check OutcomeOf afterwards: the
// attempt may have left the queue before.
func (h *Hub) Expect(a Attempt, w *Wait) {
	h.waits.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting[a] = append(h.waiting[a], w)
}

// Leave ends the registration of Expect. It returns false if the wait has ended: the hub
// has called ended, or is about to.
func (h *Hub) Leave(a Attempt, w *Wait) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := h.waiting[a]
	i := slices.Index(waits, w)
	switch {
	case i < 0:
		return false
	case len(waits) == 1:
		delete(h.waiting, a)
	default:
		h.waiting[a] = slices.Delete(waits, i, i+1)
	}
	h.waits.Add(-1)
	return true
}

// Abort ends all waits with an error.
func (h *Hub) Abort(err error) {
	h.mu.Lock()
	var calls []func()
	for _, a := range h.attempts() {
		calls = h.end(calls, a, machine.Result{}, err, engine.Instant{})
	}
	h.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// HasWaits reports whether a caller waits.
func (h *Hub) HasWaits() bool { return h.waits.Load() > 0 }

// Watcher is one caller that watches a lock. It receives a value after one or more changes.
type Watcher chan struct{}

// NewWatcher returns a Watcher whose first change is already due.
func NewWatcher() Watcher {
	w := make(Watcher, 1)
	w.notify()
	return w
}

func (w Watcher) notify() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Follow calls changed with the current status of a lock and after each change, until ctx ends
// or inspect fails.
func (w Watcher) Follow(ctx context.Context, inspect func() (engine.Status, error), changed func(engine.Status)) error {
	for {
		select {
		case <-w:
			status, err := inspect()
			if err != nil {
				return err
			}
			changed(status)
		case <-ctx.Done():
			return engine.Cause(ctx)
		}
	}
}

// Watch registers a watcher of a lock. Call stop when done.
func (h *Hub) Watch(resource fencing.Resource, w Watcher) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers[resource] == nil {
		h.watchers[resource] = map[Watcher]bool{}
	}
	h.watchers[resource][w] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.watchers[resource], w); len(h.watchers[resource]) == 0 {
			delete(h.watchers, resource)
		}
	}
}

// Applied notifies waiters and watchers after m has applied a command, which arrived at
// this node at a time that may be unknown. It returns the calls to waiters and listeners,
// which the caller makes without any lock.
func (h *Hub) Applied(m *machine.Machine, c machine.Command, result machine.Result, events []machine.Event,
	arrived engine.Instant) (calls []func()) {
	if len(events) == 0 {
		switch c.(type) { // frequent commands without effect on others
		case *machine.Acquire, *machine.Release, *machine.OpenSession:
			return nil
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) > 0 {
		calls = h.answer(calls, m, c, events, arrived)
	}
	for i := range events {
		e := &events[i]
		h.notifyWatchers(e.Resources)
		switch e.Type {
		case machine.EventExpired:
			calls = append(calls, h.losses(attemptOf(e), engine.ErrExpired)...)
		case machine.EventBroken:
			calls = append(calls, h.losses(attemptOf(e), broken(c))...)
		}
	}
	h.sessionsEnded(m, c, result)
	return calls
}

// sessionsEnded drops the listeners of sessions that have lost their last lease. The caller
// holds mu.
func (h *Hub) sessionsEnded(m *machine.Machine, c machine.Command, result machine.Result) {
	switch c := c.(type) {
	case *machine.EndRequests:
		for _, gone := range result.Gone {
			h.removeIncarnation(gone.Session, gone.Number)
		}
	case *machine.CloseSession:
		h.removeGone(m, c.Session, c.Incarnation, result)
	case *machine.Expire:
		h.removeGone(m, c.Session, c.Incarnation, result)
	case *machine.EndSessions:
		h.removeEnded(m)
	}
}

// removeGone drops the listeners of a session that had no requests when it ended.
func (h *Hub) removeGone(m *machine.Machine, id engine.SessionID, incarnation uint64, result machine.Result) {
	if result.Code == machine.Done && !m.Ending(incarnation) {
		h.removeIncarnation(id, incarnation)
	}
}

// Restored updates the hub after a snapshot has replaced the machine. Holders without a
// grant in the new state have lost their leases, waiters with a grant are answered, and
// all watchers are notified. It returns calls as Applied does.
func (h *Hub) Restored(old, now *machine.Machine) (calls []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, listeners := range h.listeners {
		incarnation := old.SessionInfo(id).Incarnation
		calls = append(calls, h.lostInRestore(now, id, incarnation, old.Holds(id, incarnation))...)
		for _, r := range listeners {
			calls = append(calls, h.lostInRestore(now, id, r.incarnation, old.EndingHolds(r.incarnation))...)
		}
	}
	h.removeEnded(now)
	calls = h.answerRestored(calls, now)
	for name := range h.watchers {
		h.notifyWatchers([]fencing.Resource{name})
	}
	return calls
}

// lostInRestore returns the calls that report the leases of a session that a snapshot does not
// have. The caller holds mu.
func (h *Hub) lostInRestore(now *machine.Machine, id engine.SessionID, incarnation uint64,
	holds *machine.Holds) (calls []func()) {
	all, _ := holds.Next(math.MaxInt)
	for _, held := range all {
		a := Attempt{id, incarnation, held.Nonce}
		if now.Attempt(id, a.Incarnation, a.Nonce).Token != held.Token {
			calls = append(calls, h.losses(a, fmt.Errorf("%w: the service was restored from a snapshot without it",
				engine.ErrNotHeld))...)
		}
	}
	return calls
}

// notifyWatchers wakes the watchers of locks. The caller holds mu.
func (h *Hub) notifyWatchers(names []fencing.Resource) {
	if len(h.watchers) == 0 {
		return
	}
	for _, name := range names {
		for w := range h.watchers[name] {
			w.notify()
		}
	}
}

// broken returns why a command broke a holder.
func broken(c machine.Command) error {
	switch c.(type) {
	case *machine.EndRequests:
		return fmt.Errorf("%w: an operator migrated the lock to efficiency mode without waiting for its holders",
			engine.ErrTaken)
	}
	return fmt.Errorf("%w: broken by an operator", engine.ErrTaken)
}

// Idle reports whether there are no waiters, listeners or watchers.
func (h *Hub) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting) == 0 && len(h.listeners) == 0 && len(h.watchers) == 0
}
