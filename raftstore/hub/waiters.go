package hub

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Attempt identifies an Acquire.
type Attempt struct {
	Session     engine.SessionID
	Incarnation uint64
	Nonce       engine.Nonce
}

func attemptOf(e *machine.Event) Attempt { return Attempt{e.Session, e.Incarnation, e.Nonce} }

// OutcomeOf returns the state of an attempt in m. A queued attempt for which no
// token is left is Exhausted: it stays in the queue until it is released or its
// session ends, and blocks no other request.
func OutcomeOf(m *machine.Machine, a Attempt) machine.Result {
	result := m.Attempt(a.Session, a.Incarnation, a.Nonce)
	if result.Code == machine.Queued && m.LastToken() == fencing.MaxToken {
		return machine.Result{Code: machine.Exhausted}
	}
	return result
}

// Waiters are the callers that wait for queued attempts; W identifies one of
// them. Its methods must not be called concurrently. The zero value is empty.
type Waiters[W comparable] struct{ waiting map[Attempt][]W }

// Answer is called once for each waiter whose wait ends.
type Answer[W comparable] func(waiter W, result machine.Result, err error)

// Add registers a waiter. Call OutcomeOf afterwards: the attempt may have left
// the queue before.
func (w *Waiters[W]) Add(a Attempt, waiter W) {
	if w.waiting == nil {
		w.waiting = map[Attempt][]W{}
	}
	w.waiting[a] = append(w.waiting[a], waiter)
}

// Remove drops a waiter that waits no longer. It returns false if there is none.
func (w *Waiters[W]) Remove(a Attempt, waiter W) bool {
	waiters := w.waiting[a]
	i := slices.Index(waiters, waiter)
	switch {
	case i < 0:
		return false
	case len(waiters) == 1:
		delete(w.waiting, a)
	default:
		w.waiting[a] = slices.Delete(waiters, i, i+1)
	}
	return true
}

// Abort answers all waiters with an error.
func (w *Waiters[W]) Abort(err error, answer Answer[W]) {
	for _, a := range w.attempts() {
		w.end(a, machine.Result{}, err, answer)
	}
}

// Len returns the number of attempts that have waiters.
func (w *Waiters[W]) Len() int { return len(w.waiting) }

// Applied answers the waiters whose attempts a command took out of the queue of
// m: granted, or cancelled. When the last token is used up it answers all.
func (w *Waiters[W]) Applied(m *machine.Machine, c machine.Command, events []machine.Event, answer Answer[W]) {
	if len(w.waiting) == 0 {
		return
	}
	for i := range events {
		e := &events[i]
		switch e.Type {
		case machine.EventGranted:
			w.end(attemptOf(e), machine.Result{Code: machine.Granted, Token: e.Token, Slot: e.Slot, Mode: e.Mode}, nil, answer)
		case machine.EventCancelled:
			result, err := cancelled(m, c, e)
			w.end(attemptOf(e), result, err, answer)
		}
	}
	if m.LastToken() == fencing.MaxToken {
		for _, a := range w.attempts() {
			w.end(a, machine.Result{Code: machine.Exhausted}, nil, answer)
		}
	}
}

// Restored answers the waiters whose attempts are not queued in m, which has
// replaced the machine.
func (w *Waiters[W]) Restored(m *machine.Machine, answer Answer[W]) {
	for _, a := range w.attempts() {
		switch result := OutcomeOf(m, a); result.Code {
		case machine.Queued:
		case machine.Granted, machine.Exhausted:
			w.end(a, result, nil, answer)
		case machine.NoSession:
			w.end(a, machine.Result{}, engine.ErrExpired, answer)
		default:
			w.end(a, machine.Result{}, fmt.Errorf("%w: the service was restored from a snapshot; try again",
				engine.ErrUncertain), answer)
		}
	}
}

// attempts returns all attempts that have waiters, in a fixed order.
func (w *Waiters[W]) attempts() []Attempt {
	return slices.SortedFunc(maps.Keys(w.waiting), func(a, b Attempt) int {
		return cmp.Or(bytes.Compare(a.Session[:], b.Session[:]), cmp.Compare(a.Incarnation, b.Incarnation),
			cmp.Compare(a.Nonce, b.Nonce))
	})
}

// end answers and drops the waiters of an attempt.
func (w *Waiters[W]) end(a Attempt, result machine.Result, err error, answer Answer[W]) {
	waiters := w.waiting[a]
	delete(w.waiting, a)
	for _, waiter := range waiters {
		answer(waiter, result, err)
	}
}

// cancelled returns why a command took a waiter out of the queue: it was released, a copy
// ended its wait, its lock migrates, or its session has ended.
func cancelled(m *machine.Machine, c machine.Command, e *machine.Event) (machine.Result, error) {
	switch c.(type) {
	case *machine.Release:
		return machine.Result{}, fmt.Errorf("%w: attempt %d was released", engine.ErrHeld, e.Nonce)
	case *machine.Acquire:
		return machine.Result{}, fmt.Errorf("%w: a copy of attempt %d did not wait", engine.ErrHeld, e.Nonce)
	case *machine.EndRequests:
		if m.SessionInfo(e.Session).Incarnation == e.Incarnation { // the session is open
			return m.Routable(e.Resources), nil
		}
	}
	return machine.Result{}, engine.ErrExpired
}
