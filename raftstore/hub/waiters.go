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

// answer ends the waits whose attempts a command took out of the queue of m: granted, or
// cancelled. When the last token is used up it ends all. It appends the calls to their callers.
func (h *Hub) answer(calls []func(), m *machine.Machine, c machine.Command, events []machine.Event,
	arrived engine.Instant) []func() {
	for i := range events {
		e := &events[i]
		switch e.Type {
		case machine.EventGranted:
			granted := machine.Result{Code: machine.Granted, Token: e.Token, Slot: e.Slot, Mode: e.Mode}
			calls = h.end(calls, attemptOf(e), granted, nil, arrived)
		case machine.EventCancelled:
			result, err := cancelled(m, c, e)
			calls = h.end(calls, attemptOf(e), result, err, arrived)
		}
	}
	if m.LastToken() == fencing.MaxToken {
		for _, a := range h.attempts() {
			calls = h.end(calls, a, machine.Result{Code: machine.Exhausted}, nil, arrived)
		}
	}
	return calls
}

// answerRestored ends the waits whose attempts are not queued in m, which has replaced the
// machine. It appends the calls to their callers.
func (h *Hub) answerRestored(calls []func(), m *machine.Machine) []func() {
	for _, a := range h.attempts() {
		result, err := OutcomeOf(m, a), error(nil)
		switch result.Code {
		case machine.Queued:
			continue
		case machine.Granted, machine.Exhausted:
		case machine.NoSession:
			result, err = machine.Result{}, engine.ErrExpired
		default:
			result, err = machine.Result{}, fmt.Errorf("%w: the service was restored from a snapshot; try again",
				engine.ErrUncertain)
		}
		calls = h.end(calls, a, result, err, engine.Instant{})
	}
	return calls
}

// attempts returns all attempts that have waiters, in a fixed order.
func (h *Hub) attempts() []Attempt {
	return slices.SortedFunc(maps.Keys(h.waiting), func(a, b Attempt) int {
		return cmp.Or(bytes.Compare(a.Session[:], b.Session[:]), cmp.Compare(a.Incarnation, b.Incarnation),
			cmp.Compare(a.Nonce, b.Nonce))
	})
}

// end ends the waits for an attempt, and appends the calls to their callers.
func (h *Hub) end(calls []func(), a Attempt, result machine.Result, err error, arrived engine.Instant) []func() {
	for _, w := range h.waiting[a] {
		h.waits.Add(-1)
		w.Result, w.Err, w.Arrived = result, err, arrived
		calls = append(calls, func() { w.ended(w) })
	}
	delete(h.waiting, a)
	return calls
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
