package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// attempt is one try of one nonce: it sends the scripts and feeds the answers to
// a quorum.Attempt, which decides.
type attempt struct {
	engine.Held
	backend *Backend
	keys    []string
	version string
	sent    engine.Instant // before the first send
	renewed engine.Instant // when it was granted or last renewed; guarded by grants

	canceled atomic.Bool   // what was not sent need not be
	decided  chan struct{} // closed with the decision
	all      chan struct{} // of a waiter: closed when every node has answered the acquire, or failed

	mu      sync.Mutex
	core    *quorum.Attempt
	errs    []error // why nodes did not accept; nil if all did
	unknown uint64  // the nodes that may carry out a request that was not answered
	taken   uint64  // the nodes that accepted the acquire, whatever they said to a raise
	silent  int     // nodes without an answer to the acquire
	over    bool    // released
}

func (b *Backend) newAttempt(h engine.Held, version uint64) *attempt {
	n := len(b.nodes)
	return &attempt{Held: h, backend: b, keys: keysOf(h.Resources), version: strconv.FormatUint(version, 10),
		decided: make(chan struct{}), core: quorum.NewAttempt(n), silent: n, unknown: 1<<n - 1}
}

// send asks all nodes at once. waiter and ticket queue the process for a lock that
// is held; both are empty for an attempt that does not wait.
func (a *attempt) send(clock engine.Clock, waiter, ticket string) {
	r := newRequest(acquireScript, a.keys, a.version, a.backend.fingerprint, a.Name, millis(a.TTL), detailsOf(&a.Held), waiter, ticket)
	r.answer, r.canceled = a.answered, &a.canceled
	if waiter != "" {
		a.all = make(chan struct{})
	}
	a.sent = clock.Now()
	for _, n := range a.backend.nodes {
		n.push(r)
	}
}

// answered takes in a node's answer to the acquire.
func (a *attempt) answered(node int, got reply) {
	vote, err := voteOf(got)
	a.mu.Lock()
	if !got.maybe {
		a.unknown &^= 1 << node
	}
	if vote.State == quorum.Accepted {
		a.taken |= 1 << node
	}
	a.failed(node, err)
	if a.silent--; a.silent == 0 && a.all != nil {
		close(a.all)
	}
	raises := a.core.Answer(node, vote)
	a.act(raises)
}

// raised takes in a node's answer to a raise.
func (a *attempt) raised(node int, token fencing.Token, got reply) {
	vote, err := voteOf(got)
	a.mu.Lock()
	if got.maybe {
		a.unknown |= 1 << node
	}
	if got.words != nil { // it refused: the lock ran out, or the version changed
		vote.State = quorum.Refused
		if errors.Is(err, engine.ErrHeld) {
			err = errSplit
		}
	}
	a.failed(node, err)
	raises := a.core.Raised(node, token, vote)
	a.act(raises)
}

// act announces a decision and sends raises. It unlocks mu.
func (a *attempt) act(raises []quorum.Raise) {
	if a.over {
		raises = nil
	} else if a.core.Outcome() != quorum.Wait {
		select {
		case <-a.decided:
		default:
			close(a.decided)
		}
	}
	a.mu.Unlock()
	for _, r := range raises {
		request := newRequest(raiseScript, a.keys, a.version, a.backend.fingerprint, a.Name, r.Token.String())
		request.answer = func(node int, got reply) { a.raised(node, r.Token, got) }
		request.canceled = &a.canceled
		a.backend.nodes[r.Node].push(request)
	}
}

// failed notes why a node did not accept. The caller holds mu.
func (a *attempt) failed(node int, err error) {
	if err == nil {
		return
	}
	if a.errs == nil {
		a.errs = make([]error, len(a.backend.nodes))
	}
	a.errs[node] = err
}

// voteOf reads the reply of acquire or raise.
func voteOf(got reply) (quorum.Vote, error) {
	if got.err != nil {
		return quorum.Vote{State: quorum.Failed}, got.err
	}
	if got.words == nil {
		return quorum.Vote{State: quorum.Accepted, Token: got.token}, nil
	}
	refused := quorum.Vote{State: quorum.Refused}
	switch got.word(0) {
	case "held":
		left, _ := strconv.ParseInt(got.word(1), 10, 64)
		// A session passes a lock on so quickly that the nodes name different
		// attempts of it. It holds the lock all the same.
		return quorum.Vote{State: quorum.Held, Left: time.Duration(left) * time.Millisecond, Holder: sessionOf(got.word(2))}, engine.ErrHeld
	case "lost":
		return refused, errSplit
	}
	return refused, refusalOf(got)
}

// refusalOf reads why a node refused a script as a whole.
func refusalOf(got reply) error {
	switch got.word(0) {
	case "empty":
		return errEmpty
	case "fleet":
		return errFleet
	case "version":
		return ErrVersion
	case "ceiling":
		return errCeiling
	case "ended":
		return errEnded
	}
	return fmt.Errorf("%w: %q", errProtocol, got.words)
}

// await returns when the attempt is decided, when no majority has answered within
// limit, or when ctx ends.
func (a *attempt) await(ctx context.Context, limit time.Duration) error {
	timer := a.backend.startTimer(limit)
	defer a.backend.stopTimer(timer)
	select {
	case <-a.decided:
		return nil
	case <-timer.C:
		a.mu.Lock()
		answered := len(a.backend.nodes) - a.silent
		a.mu.Unlock()
		return fmt.Errorf("%w: %d of %d Redis nodes answered within %v, %d are needed",
			engine.ErrUnavailable, answered, len(a.backend.nodes), limit, a.backend.quorum)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hear gives the other nodes a moment to answer too. A waiter that was refused
// must know whether one session has the lock or the votes are split: nobody wakes
// it in the second case.
func (a *attempt) hear(ctx context.Context, limit time.Duration) {
	timer := a.backend.startTimer(limit)
	defer a.backend.stopTimer(timer)
	select {
	case <-a.all:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refusal is the error of a lost attempt. It matches engine.ErrHeld, errSplit or
// engine.ErrUnavailable.
func (a *attempt) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := func(reason error) (n int) {
		for _, err := range a.errs {
			if errors.Is(err, reason) {
				n++
			}
		}
		return n
	}
	switch {
	case quorum.HeldByOther(a.core.Votes()):
		return &heldError{after: quorum.FreeAfter(a.core.Votes())}
	case count(ErrVersion) > 0:
		a.backend.poke()
		return a.backend.versionError()
	case count(engine.ErrHeld)+count(errSplit) > 0:
		return errSplit
	case count(errEnded) > 0:
		return endedError(a.Nonce)
	}
	a.backend.poke()
	return a.backend.explain(a.errs)
}

// heldError is the refusal of a lock that someone else holds.
type heldError struct{ after time.Duration }

// Error says that the lock is held.
func (e *heldError) Error() string { return engine.ErrHeld.Error() }

// Is makes errors.Is match engine.ErrHeld.
func (e *heldError) Is(target error) bool { return target == engine.ErrHeld }

// outcome returns the decision so far.
func (a *attempt) outcome() (quorum.Outcome, fencing.Token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.core.Outcome(), a.core.Token()
}

// startTimer returns a timer, possibly a used one: every attempt needs one.
func (b *Backend) startTimer(d time.Duration) *time.Timer {
	timer, ok := b.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(d)
	}
	timer.Reset(d)
	return timer
}

func (b *Backend) stopTimer(timer *time.Timer) {
	timer.Stop()
	b.timers.Put(timer)
}
