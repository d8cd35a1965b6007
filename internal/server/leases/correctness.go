package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// fromRaft asks the Raft machine. ctx ends with the wait, caller when the caller is
// gone.
func (a *acquisition) fromRaft(ctx, caller context.Context) (*pb.AcquireResponse, error) {
	if a.call.Attempt == "" {
		response, _, err := a.askInSession(ctx, caller)
		return response, err
	}
	id := a.singleID(caller, singleMark)
	a.copies.arrive(id)
	response, s, err := a.askInSession(ctx, caller)
	var withdraw, closeUnused func()
	switch {
	case s == nil || err == nil:
	case !errors.Is(err, engine.ErrUncertain): // it was refused
		closeUnused = func() { a.closeUnused(caller, s) }
	case a.request.Wait && caller.Err() != nil: // it may be queued
		withdraw = func() { a.withdraw(caller, s) }
	}
	a.copies.leave(id, withdraw, closeUnused)
	return response, err
}

// heldInMigration reports whether an earlier copy of a call in a session was granted the lock, which is migrating now:
// the migration waits for that lease, so the call must not wait for the migration. Only the leader knows.
func (a *acquisition) heldInMigration(caller context.Context) (bool, error) {
	if a.call.SessionId == "" {
		return false, nil
	}
	topology := a.router.Node.Topology()
	var migrating *engine.MigratingError
	if _, err := topology.Route(&a.request); !errors.As(err, &migrating) {
		return false, nil
	}
	s, err := a.attach(caller, a.session, nil)
	switch {
	case routing.IsNotLeader(err):
		return false, err
	case err != nil || a.call.Nonce == 0: // after an error, the request itself fails
		return false, nil
	}
	attempt, err := s.Attempt(a.request.Nonce)
	return err == nil && attempt.Code == machine.Granted, nil
}

// askInSession asks for the lock in the caller's session, or in a new one. It also returns the
// session, unless it could not be opened.
func (a *acquisition) askInSession(ctx, caller context.Context) (*pb.AcquireResponse, *raftstore.Session, error) {
	a.trace.Step(tracing.Session)
	s, err := a.openSession(caller)
	if err != nil {
		return nil, nil, err
	}
	a.trace.Step(tracing.Commit)
	grant, err := a.askRaft(ctx, caller, s)
	if err != nil {
		err = waitEnded(ctx, caller, err)
		if a.request.Wait && a.repeatable() && errors.Is(err, engine.ErrHeld) {
			grant, err = a.endWait(caller, s, err)
		}
	}
	if err != nil {
		return nil, s, a.abandon(caller, s, err)
	}
	return a.response(grant, s.ID(), s.TTL()), s, nil
}

// openSession attaches the caller's session, or opens one for this lease.
func (a *acquisition) openSession(ctx context.Context) (*raftstore.Session, error) {
	if a.call.SessionId == "" {
		ttl, err := a.ttl()
		if err != nil {
			return nil, err
		}
		return a.open(ctx, a.singleID(ctx, singleMark), ttl, nil)
	}
	s, err := a.attach(ctx, a.session, nil)
	if err == nil && a.call.Nonce == 0 {
		a.request.Nonce, err = a.chooseNonce(s)
	}
	return s, err
}

// askRaft asks for the lock. While the request is queued, askRaft keeps the session alive
// on behalf of the caller, which renews only what it holds.
func (a *acquisition) askRaft(ctx, caller context.Context, s *raftstore.Session) (engine.Grant, error) {
	if !a.request.Wait {
		return s.Acquire(ctx, a.request)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, queued := a.request, false
	request.Queued = func() {
		a.request.Queued()
		queued = true
		go func() {
			if err := keepAlive(ctx, s, isLost); err != nil {
				cancel(err)
			}
		}()
	}
	grant, err := s.Acquire(ctx, request)
	if lost := context.Cause(ctx); err != nil && errors.Is(lost, engine.ErrLost) {
		err = lost
	}
	if err == nil && queued { // the session was renewed before the wait
		a.counted = a.router.Clock.Now()
		err = grantedBut(s.Extend(caller))
	}
	return grant, err
}

// keepSession is keepAlive for a caller that waits in its own session, also while the locks migrate and the request is
// in no queue. Such a wait ends if this member no longer leads, because only the leader can keep the session. If the
// session has ended, the request itself fails.
func (a *acquisition) keepSession(ctx context.Context, end context.CancelCauseFunc) {
	s, err := a.attach(ctx, a.session, nil)
	if err != nil {
		return
	}
	err = keepAlive(ctx, s, func(err error) bool {
		return isLost(err) || routing.IsNotLeader(err) && !a.queued.Load()
	})
	if routing.IsNotLeader(err) {
		end(err)
	}
}

// keepAlive renews a session at once and then until ctx ends, while it holds nothing: a caller that is stopped, or cut
// off, must not keep its leases by a call that waits. It returns an error that ends the wait, or nil.
func keepAlive(ctx context.Context, s *raftstore.Session, ends func(error) bool) error {
	ticks := time.NewTicker(s.TTL() / 3)
	defer ticks.Stop()
	for {
		holds, err := s.HoldsAny()
		if err == nil && !holds {
			err = s.Extend(ctx)
		}
		if ends(err) {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func isLost(err error) bool { return errors.Is(err, engine.ErrLost) }

// grantedBut returns the error of an attempt that was granted and could not be renewed.
// Unless the lease is lost, the attempt may still hold the lock. Without
// engine.ErrUncertain, a member that no longer leads would forward the request, which
// would wait for its own first lease.
func grantedBut(err error) error {
	if err == nil || errors.Is(err, engine.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: the lease was granted, but not renewed: %w", engine.ErrUncertain, err)
}

// waitEnded returns engine.ErrHeld if the wait for the lock is over, else err. ctx ends with the wait,
// caller when the caller is gone.
func waitEnded(ctx, caller context.Context, err error) error {
	if cause := context.Cause(ctx); caller.Err() == nil && errors.Is(cause, engine.ErrHeld) {
		return cause
	}
	return err
}

// endWait ends an attempt that has waited long enough. It does so before the answer, because
// the caller would not learn of a later grant, and the answer is uncertain if that fails. It repeats the attempt
// without waiting, and the order in the log decides. If another copy of the attempt was granted meanwhile,
// endWait returns that grant, because this copy does not know whether the other one still
// wants it.
func (a *acquisition) endWait(caller context.Context, s *raftstore.Session, held error) (engine.Grant, error) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(caller), cleanupTimeout)
	defer cancel()
	last := a.request
	last.Wait, last.Queued = false, nil
	grant, err := s.Acquire(cleanup, last)
	a.counted = a.router.Clock.Now()
	switch {
	case err == nil:
		return grant, grantedBut(s.Extend(cleanup))
	case errors.Is(err, engine.ErrHeld), errors.Is(err, engine.ErrLost):
		return engine.Grant{}, held
	}
	return engine.Grant{}, fmt.Errorf("%w: attempt %d may still be queued or granted; release it by sessionId and "+
		"nonce (%w)",
		engine.ErrUncertain, a.request.Nonce, err)
}

// abandon ends a failed attempt, so that it leaves nothing behind, and returns the error for
// the caller. A refused attempt has left nothing. An attempt with an uncertain outcome stays
// if the caller can repeat it by its nonce.
func (a *acquisition) abandon(ctx context.Context, s *raftstore.Session, err error) error {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	switch {
	case a.call.Attempt != "": // a copy of the call may hold the lock in this session
	case a.call.SessionId == "":
		failed := s.Close(cleanup) // otherwise it expires
		if failed != nil && a.request.Wait && errors.Is(err, engine.ErrHeld) {
			err = fmt.Errorf("%w: the attempt may still be queued or granted (%w)", engine.ErrUncertain, failed)
		}
	case a.call.Nonce == 0 && errors.Is(err, engine.ErrUncertain):
		_ = s.Release(cleanup, engine.Held{Nonce: a.request.Nonce}) // otherwise it ends with the session
	}
	return err
}

// withdraw ends an attempt that waits and whose last caller is gone. Otherwise the attempt would
// stay in the queue for the TTL of the lease, and could be granted to nobody. The order in the log
// decides: a lease that a copy was granted stays, because the caller may know it. The session is
// closed so that a later copy of the call can wait again.
func (a *acquisition) withdraw(caller context.Context, s *raftstore.Session) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(caller), cleanupTimeout)
	defer cancel()
	last := a.request
	last.Wait, last.Queued = false, nil
	if _, err := s.Acquire(cleanup, last); errors.Is(err, engine.ErrHeld) {
		_ = s.Close(cleanup) // otherwise it expires, and holds nothing
	}
}

// closeUnused closes the session of a refused call with an attempt, unless a copy was granted a lease. Otherwise a
// caller that tries again and again would have a session for each of its attempts, until their TTL is over.
func (a *acquisition) closeUnused(caller context.Context, s *raftstore.Session) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(caller), cleanupTimeout)
	defer cancel()
	if a.isLast(cleanup, s.ID(), machine.Result{Code: machine.Ended}) {
		_ = s.Close(cleanup) // otherwise it expires
	}
}
