package raftstore

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// Caller receives the outcome of an operation, such as one that Begin or BeginRelease has
// started. Its methods are called on the goroutine that applies the log, or on another one, and
// must not block.
type Caller interface {
	// Done receives the outcome, once: the error that Acquire or Release would return, or the
	// result of the machine.
	Done(result machine.Result, err error)
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
	command := &machine.Release{Session: s.config.ID, Incarnation: s.number, Nonce: nonce}
	if err := machine.Validate(command); err != nil {
		return err
	}
	term := n.leading.Load()
	if term == nil {
		return n.notLeader()
	}
	return n.committer.enqueue(term, command, c)
}

// Flush proposes the operations that Begin and BeginRelease have started.
func (b *Backend) Flush() {
	for _, n := range b.nodes {
		n.committer.wakeUp()
	}
}

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

// Done receives the outcome of the command.
func (a *acquisition) Done(result machine.Result, err error) {
	if err == nil && result.Code == machine.Queued && a.command.Request.Wait {
		a.await()
		return
	}
	a.end(result, err)
}

// Flush passes on the end of the outcomes of a log entry.
func (a *acquisition) Flush() { a.caller.Flush() }

// errWaitEnded ends the waits on a node that has lost its leadership.
var errWaitEnded = fmt.Errorf("%w: the leader has changed, and the attempt is still queued; repeat it with the "+
	"same nonce", engine.ErrUncertain)

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
			a.Flush()
		}
	}
	abandoned := func() { leave(machine.Result{}, fmt.Errorf("%w: %w", engine.ErrUncertain, engine.Cause(a.ctx))) }
	a.stop = context.AfterFunc(a.ctx, abandoned)
	a.node.hub.Expect(attempt, w)
	var result machine.Result
	a.node.fsm.Read(func(m *machine.Machine) {
		result = hub.OutcomeOf(m, attempt)
		if routable := m.Routable(a.command.Request.Resources); result.Code == machine.Ended &&
			routable.Code != machine.Done {
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
	a.Flush()
}

// end passes the outcome of the attempt to the caller.
func (a *acquisition) end(result machine.Result, err error) {
	if a.stop != nil {
		a.stop()
	}
	if err == nil {
		err = result.Refusal(&a.command.Request)
	}
	a.caller.Done(result, err)
}
