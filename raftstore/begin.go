package raftstore

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// Caller receives the outcome of an operation that Begin or BeginRelease has started. Its
// methods are called on the goroutine that applies the log, or on another one, and must not
// block.
type Caller interface {
	// Done receives the outcome, once. It is what Acquire or Release would return.
	Done(grant engine.Grant, err error)
	// Flush is called after Done, when all outcomes of the same log entry have been delivered.
	Flush()
}

// Begin is Acquire for a caller that does not wait: it returns at once, and the caller
// receives the outcome. If it returns an error, nothing was started. The end of ctx ends
// only the wait for a lock that is not free. The operation may be delayed until
// Backend.Flush is called, so that operations that are started together share a log
// entry.
func (s *Session) Begin(ctx context.Context, request engine.Request, c Caller) error {
	n, err := s.backend.leader()
	if err != nil {
		return err
	}
	return s.begin(ctx, n, request, c)
}

// begin starts an acquire on the node that leads.
func (s *Session) begin(ctx context.Context, n *Node, request engine.Request, c Caller) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	if request.Mode == engine.Efficiency {
		return n.refuseEfficiency(request)
	}
	request.Mode = engine.Correctness // this engine grants no locks in efficiency mode
	a := &acquisition{session: s, node: n, ctx: ctx, caller: c,
		command: machine.Acquire{Session: s.config.ID, Incarnation: s.number, Request: request, Limits: n.limitsNow()}}
	if err := machine.Validate(&a.command); err != nil {
		return err
	}
	if a.term = n.leading.Load(); a.term == nil {
		return n.notLeader()
	}
	return n.committer.enqueue(a.term, &a.command, a)
}

// BeginRelease is Release for a caller that does not wait. It returns at once and may be
// delayed until Backend.Flush, like Begin.
func (s *Session) BeginRelease(nonce engine.Nonce, c Caller) error {
	n, err := s.backend.leader()
	if err != nil {
		return err
	}
	r := &release{caller: c, command: machine.Release{Session: s.config.ID, Incarnation: s.number, Nonce: nonce}}
	if err := machine.Validate(&r.command); err != nil {
		return err
	}
	term := n.leading.Load()
	if term == nil {
		return n.notLeader()
	}
	return n.committer.enqueue(term, &r.command, r)
}

// Flush proposes the operations that Begin and BeginRelease have started.
func (b *Backend) Flush() {
	for _, n := range b.nodes {
		n.committer.wakeUp()
	}
}

// release is a release under way.
type release struct {
	caller  Caller
	command machine.Release
}

func (r *release) deliver(_ machine.Result, err error) {
	if err != nil {
		err = fmt.Errorf("release: %w", err)
	}
	r.caller.Done(engine.Grant{}, err)
}

func (r *release) flush() { r.caller.Flush() }

// acquisition is an acquire under way.
type acquisition struct {
	session *Session
	node    *Node
	term    *leadership
	ctx     context.Context
	caller  Caller
	command machine.Acquire
	stop    func() bool // undoes the registration with ctx, nil if there is none
}

func (a *acquisition) deliver(result machine.Result, err error) {
	if err == nil && result.Code == machine.Queued && a.command.Request.Wait {
		a.await()
		return
	}
	a.end(result, err)
}

func (a *acquisition) flush() { a.caller.Flush() }

// errWaitEnded ends the waits on a node that has lost its leadership.
var errWaitEnded = fmt.Errorf("%w: the leader has changed, and the attempt is still queued; repeat it with the same nonce", engine.ErrUncertain)

// await waits for the grant of a queued attempt. If this node loses its leadership, the
// attempt stays in the queue: the caller repeats it at the next leader with the same nonce
// and keeps its place.
func (a *acquisition) await() {
	if queued := a.command.Request.Queued; queued != nil {
		queued()
	}
	attempt := hub.Attempt{Session: a.session.config.ID, Incarnation: a.session.number, Nonce: a.command.Request.Nonce}
	w := hub.NewWait(a.granted)
	leave := func(result machine.Result, err error) {
		if a.node.hub.Leave(attempt, w) {
			a.end(result, err)
			a.flush()
		}
	}
	abandoned := func() { leave(machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(a.ctx))) }
	a.stop = context.AfterFunc(a.ctx, abandoned)
	a.node.hub.Expect(attempt, w)
	var result machine.Result
	a.node.fsm.Read(func(m *machine.Machine) {
		result = hub.OutcomeOf(m, attempt)
		if routable := m.Routable(a.command.Request.Resources); result.Code == machine.Ended && routable.Code != machine.Done {
			result = routable // a migration removed it from the queue
		}
	})
	switch {
	case result.Code != machine.Queued: // it was granted before this node waited for it
		leave(result, nil)
	case a.node.leading.Load() != a.term: // Abort may have run before Expect
		leave(machine.Result{}, errWaitEnded)
	case a.ctx.Err() != nil: // the function of AfterFunc may have run before Expect
		abandoned()
	}
}

// granted ends the wait of the attempt.
func (a *acquisition) granted(w *hub.Wait) {
	a.node.config.Hooks.handedOff(w)
	a.end(w.Result, w.Err)
	a.flush()
}

// end passes the outcome of the attempt to the caller.
func (a *acquisition) end(result machine.Result, err error) {
	if a.stop != nil {
		a.stop()
	}
	if err == nil {
		err = refusal(&a.command.Request, result)
	}
	if err != nil {
		a.caller.Done(engine.Grant{}, err)
		return
	}
	a.caller.Done(engine.Grant{Token: result.Token, Slot: result.Slot, Mode: result.Mode, Sent: a.session.since()}, nil)
}

// refusal returns the error for the result of an acquire, nil if it was granted.
func refusal(request *engine.Request, result machine.Result) error {
	switch result.Code {
	case machine.Granted:
		return nil
	case machine.Held:
		return engine.ErrHeld
	case machine.Ended:
		return fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, request.Nonce)
	case machine.NoSession:
		return engine.ErrExpired
	case machine.Exhausted: // repeating the call does not help
		return errExhausted
	case machine.WrongMode:
		return &engine.ModeError{Resource: result.Resource, Want: engine.Correctness, Have: result.Mode}
	case machine.OtherPermits:
		return &engine.PermitsError{Resource: result.Resource, Want: request.Permits, Have: result.Permits}
	case machine.OtherRequest:
		return fmt.Errorf("%w: attempt %d is for other locks or of another kind, not for %q (%s); use a new nonce",
			engine.ErrInvalid, request.Nonce, request.Resources, request.Kind)
	case machine.LowNonce:
		return machine.LowNonceError(request.Nonce, result.Nonce)
	case machine.Limited:
		return result.Limit
	case machine.NotReady:
		return fmt.Errorf("%w; see 'leased redis status'", ErrNotReady)
	case machine.Migrating:
		return &engine.MigratingError{Resource: result.Resource, From: result.Mode, To: result.Next}
	}
	return fmt.Errorf("%w: the machine answered %s", engine.ErrUncertain, result.Code)
}

// waitingCaller is a Caller that waits.
type waitingCaller struct {
	outcome chan grantOrError // has room for one
	queued  chan struct{}     // has room for one: the attempt is queued
}

type grantOrError struct {
	grant engine.Grant
	err   error
}

func newWaitingCaller() waitingCaller {
	return waitingCaller{outcome: make(chan grantOrError, 1), queued: make(chan struct{}, 1)}
}

// Done passes on the outcome.
func (w waitingCaller) Done(grant engine.Grant, err error) { w.outcome <- grantOrError{grant, err} }

// Flush does nothing: Done has woken the caller.
func (waitingCaller) Flush() {}

// wait waits for the outcome, and calls queued on the goroutine of the caller. It does not wait
// for the Raft library, which may drop an operation on shutdown.
func (w waitingCaller) wait(ctx context.Context, stopped <-chan struct{}, queued func()) (engine.Grant, error) {
	for {
		select {
		case <-w.queued:
			queued()
		case out := <-w.outcome:
			return out.grant, out.err
		case <-ctx.Done():
			return engine.Grant{}, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
		case <-stopped:
			return engine.Grant{}, ErrStopped
		}
	}
}
