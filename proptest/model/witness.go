package model

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Promise is the name of one thing that a lock service promises in log order.
type Promise string

// The promises that a Witness holds events against. T1, T2 and M1 are those of
// the design; the others are what "first come, first served", "sent twice, done
// once" and "waiters do not poll" mean.
const (
	T1     Promise = "T1: no token twice"
	T2     Promise = "T2: tokens grow"
	M1     Promise = "M1: no conflicting holders"
	Once   Promise = "an attempt is granted at most once"
	FIFO   Promise = "no waiter is overtaken by a later conflicting request"
	WakeUp Promise = "no waiter is left waiting that could be granted"
	Delay  Promise = "nothing is granted during a lock-delay"
	Told   Promise = "events tell the whole story"
	Modes  Promise = "T3: tokens of a lock grow over both modes"
	Ranges Promise = "no token is assigned to Redis twice"
	Closed Promise = "a lock is not granted while it moves, nor in the other mode"
)

// Violation is a broken promise.
type Violation struct {
	Promise Promise
	Detail  string
}

// Error names the promise and what broke it.
func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Promise, v.Detail) }

func broken(p Promise, format string, args ...any) error {
	return &Violation{Promise: p, Detail: fmt.Sprintf(format, args...)}
}

// party is a holder or a waiter, as the events tell of it.
type party struct {
	attempt Attempt
	request engine.Request
	token   fencing.Token
	slot    int
}

// Witness holds the events of a lock service, in the order of its log, against
// the promises. It keeps its own books, from events alone.
type Witness struct {
	asked   map[Attempt]engine.Request
	waiters []party // in the order in which they were queued
	holders []party
	granted map[Attempt]bool // ever, in the present life of the session
	tokens  map[fencing.Token]bool
	last    fencing.Token
	delayed map[fencing.Resource]bool

	bothModes
}

// NewWitness returns a Witness that has seen nothing.
func NewWitness() *Witness {
	return &Witness{asked: map[Attempt]engine.Request{}, granted: map[Attempt]bool{},
		tokens: map[fencing.Token]bool{}, delayed: map[fencing.Resource]bool{}, bothModes: newBothModes()}
}

// Asked tells what an attempt asks for, before its events are seen. A copy of
// an attempt that waits or holds changes nothing, whatever it asks for.
func (w *Witness) Asked(session engine.SessionID, request engine.Request) {
	attempt := Attempt{session, request.Nonce}
	if find(w.waiters, attempt) < 0 && find(w.holders, attempt) < 0 {
		w.asked[attempt] = request
	}
}

// Raised tells that all later tokens must be above floor.
func (w *Witness) Raised(floor fencing.Token) { w.last = max(w.last, floor) }

// SessionEnded tells that a session is over, its events seen. If it is opened
// again it is another one, whose attempts have not been made yet.
func (w *Witness) SessionEnded(id engine.SessionID) error {
	for attempt := range w.granted {
		if attempt.Session == id {
			delete(w.granted, attempt)
		}
	}
	for _, p := range slices.Concat(w.waiters, w.holders) {
		if p.attempt.Session == id {
			return broken(Told, "session %s has ended, its attempt %d has not", id, p.attempt.Nonce)
		}
	}
	return nil
}

// See takes one event, and reports the first promise that it breaks.
func (w *Witness) See(e Event) error {
	attempt := Attempt{e.Session, e.Nonce}
	switch e.What {
	case WasQueued:
		return w.queued(attempt, e)
	case WasGranted:
		return w.grantedNow(attempt, e)
	case WasCancelled:
		i := find(w.waiters, attempt)
		if i < 0 || e.Token != fencing.None {
			return broken(Told, "attempt %d was cancelled and did not wait", e.Nonce)
		}
		w.waiters = slices.Delete(w.waiters, i, i+1)
	case WasReleased, WasExpired, WasBroken:
		i := find(w.holders, attempt)
		if i < 0 || w.holders[i].token != e.Token || w.holders[i].slot != e.Slot {
			return broken(Told, "attempt %d with token %d was %s and did not hold", e.Nonce, e.Token, e.What)
		}
		w.holders = slices.Delete(w.holders, i, i+1)
	case WasDelayed:
		w.delayed[e.Resources[0]] = true
	case WasOpened:
		if !w.delayed[e.Resources[0]] {
			return broken(Told, "%q was opened and was not delayed", e.Resources[0])
		}
		delete(w.delayed, e.Resources[0])
	default:
		return broken(Told, "unknown event %q", e.What)
	}
	return nil
}

func (w *Witness) queued(attempt Attempt, e Event) error {
	request, known := w.asked[attempt]
	if !known || !request.Wait || !slices.Equal(request.Resources, e.Resources) {
		return broken(Told, "attempt %d was queued and did not ask for it", e.Nonce)
	}
	if find(w.waiters, attempt) >= 0 || w.granted[attempt] {
		return broken(Once, "attempt %d was queued again", e.Nonce)
	}
	w.waiters = append(w.waiters, party{attempt: attempt, request: request})
	return nil
}

func (w *Witness) grantedNow(attempt Attempt, e Event) error {
	request, known := w.asked[attempt]
	p := party{attempt: attempt, request: request, token: e.Token, slot: e.Slot}
	switch {
	case !known || !slices.Equal(request.Resources, e.Resources):
		return broken(Told, "attempt %d was granted and did not ask for it", e.Nonce)
	case w.granted[attempt]:
		return broken(Once, "attempt %d was granted again, with token %d", e.Nonce, e.Token)
	case w.tokens[e.Token]:
		return broken(T1, "token %d", e.Token)
	case e.Token <= w.last || !e.Token.Valid():
		return broken(T2, "token %d after %d", e.Token, w.last)
	}
	if err := w.grantedBeside(e); err != nil {
		return err
	}
	ahead := w.waiters
	if i := find(w.waiters, attempt); i >= 0 {
		ahead = w.waiters[:i]
	}
	if err := w.obstacle(p, ahead); err != nil {
		return err
	}
	if (request.Kind == engine.Permit) != (p.slot >= 1 && p.slot <= request.Permits) {
		return broken(M1, "slot %d of %d", p.slot, request.Permits)
	}
	w.waiters = slices.DeleteFunc(w.waiters, func(q party) bool { return q.attempt == attempt })
	w.holders = append(w.holders, p)
	w.granted[attempt] = true
	w.tokens[e.Token] = true
	w.last = e.Token
	return nil
}

// obstacle is why p may not be granted now, as the promise that this would
// break. A slot of 0 stands for any.
func (w *Witness) obstacle(p party, ahead []party) error {
	for _, name := range p.request.Resources {
		if w.delayed[name] {
			return broken(Delay, "%q to attempt %d", name, p.attempt.Nonce)
		}
	}
	var slots []int
	for _, h := range w.holders {
		if !share(p.request, h.request) {
			continue
		}
		if !sideBySide(p.request, h.request) || p.slot != 0 && p.slot == h.slot {
			return broken(M1, "attempt %d beside attempt %d, which has token %d", p.attempt.Nonce, h.attempt.Nonce, h.token)
		}
		if h.slot <= p.request.Permits {
			slots = append(slots, h.slot)
		}
	}
	if p.request.Kind == engine.Permit && len(slots) >= p.request.Permits {
		return broken(M1, "attempt %d where all %d slots are taken", p.attempt.Nonce, p.request.Permits)
	}
	for _, q := range ahead {
		if share(p.request, q.request) && !mayPass(p.request, q.request) {
			return broken(FIFO, "attempt %d before attempt %d", p.attempt.Nonce, q.attempt.Nonce)
		}
	}
	return nil
}

// Settled reports a waiter that could be granted and was not. It is asked after
// every command.
func (w *Witness) Settled() error {
	if w.last == fencing.MaxToken {
		return nil
	}
	for i, p := range w.waiters {
		if w.obstacle(p, w.waiters[:i]) == nil {
			return broken(WakeUp, "attempt %d of session %s", p.attempt.Nonce, p.attempt.Session)
		}
	}
	return nil
}

func find(list []party, attempt Attempt) int {
	return slices.IndexFunc(list, func(p party) bool { return p.attempt == attempt })
}
