package clientcore

import (
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Call is one acquisition. The driver calls Route, opens the session if it is not open, calls
// Ask, asks the engine, and calls Granted or Failed. At the end it calls Leave.
type Call struct {
	// Request is the request without its nonce.
	Request *engine.Request
	// Try says that the call does not wait for the lock.
	Try bool
	// Began is when the call began.
	Began engine.Instant
	// Owner is the driver's record of the call.
	Owner any

	session   *Session       // nil before the first attempt
	nonce     engine.Nonce   // the attempt whose outcome is open, else 0
	uncertain bool           // an ask without an answer may have been granted
	lost      error          // a loss of the attempt that overtook its grant
	waits     bool           // an ask that waits for a lock in efficiency mode is under way
	asked     engine.Instant // before the last ask
	version   uint64         // of the topology that the last ask followed
	backoff   Backoff
}

// Session returns the session of the call, nil if it has none.
func (a *Call) Session() *Session { return a.session }

// Route chooses the session for the next ask: the one that serves the locks now. Moving
// to another session ends the attempt in the former one.
func (c *Core) Route(a *Call, now engine.Instant, timing Timing, fixed bool) (*Session, error) {
	key := Key{Timing: timing}
	if t := c.topology; t != nil {
		var err error
		a.version = t.Version
		if key.Mode, err = t.Route(a.Request); err != nil {
			c.Leave(a, now) // a migration waits for what the attempt may hold
			return nil, err
		}
	}
	if c.over != nil {
		return nil, c.over
	}
	if a.session != nil && (a.session.over != nil || a.session.key != key) {
		c.Leave(a, now)
	}
	if a.session == nil {
		a.session = c.join(key, fixed)
	}
	return a.session, nil
}

// Ask begins an ask, with the nonce of the attempt whose outcome is open if there is one.
// The driver sends the request, and counts the lease from now.
func (c *Core) Ask(a *Call, now engine.Instant) engine.Request {
	s := a.session
	if a.nonce == 0 {
		s.lastNonce++
		a.nonce, a.uncertain, a.lost = s.lastNonce, false, nil
		s.attempts[a.nonce] = a
	}
	if s.key.Mode == engine.Efficiency {
		a.lost = nil // SetTopology may have ended an earlier ask
	}
	a.asked, a.waits = now, s.key.Mode == engine.Efficiency && !a.Try
	request := *a.Request
	request.Nonce, request.Repeated = a.nonce, a.uncertain
	return request
}

// Granted records that the engine has granted the attempt. g is the driver's new grant. It
// returns an error if the grant has ended by now.
func (c *Core) Granted(a *Call, now engine.Instant, g *Grant, answer engine.Grant) error {
	a.waits = false
	err := a.session.accept(now, a, g, answer)
	a.nonce = 0
	return err
}

// Verdict is what to do after a failure.
type Verdict struct {
	// Again says to ask again, after Pause.
	Again bool
	Pause time.Duration
	// Newer says to wait for a topology newer than Version before: the known one seems to
	// be stale.
	Newer   bool
	Version uint64
	// Err is the failure for the caller and the hooks.
	Err error
	// Ended are the grants of a session that is lost.
	Ended []*Grant
}

// Failed decides what follows when the call has no session, or its ask has failed. gone says that
// the caller no longer waits, whatever the error says.
func (c *Core) Failed(a *Call, now engine.Instant, err error, gone bool) Verdict {
	a.waits = false
	v := Verdict{Err: err, Version: a.version}
	if gone {
		a.uncertain = a.uncertain || mayBeGranted(err)
		return v
	}
	stale := c.stale(a, err)
	v.Ended = a.failed(err)
	if stale {
		v.Newer = true
		if errors.Is(err, engine.ErrModeMismatch) { // the caller's mode may be right by the newer topology
			v.Err = fmt.Errorf("%w: %s", engine.ErrUnavailable, err.Error())
		}
	}
	v.Again = a.again(v.Err, now.Since(a.Began))
	v.Pause = c.NextPause(&a.backoff, now)
	return v
}

// failed records the outcome of an attempt that was not granted.
func (a *Call) failed(err error) (ended []*Grant) {
	switch {
	case a.nonce == 0: // it was not asked
	case engine.Refused(err):
		a.endAttempt()
	case errors.Is(err, engine.ErrLost) && a.session.key.Mode != engine.Efficiency: // the session is lost
		ended = a.session.End(err)
	case mayBeGranted(err):
		a.uncertain = true
	}
	return ended
}

// mayBeGranted reports whether the service may grant an attempt although it was answered with err.
func mayBeGranted(err error) bool {
	return !Matches(err, engine.ErrUnavailable, engine.ErrForbidden, engine.ErrLimit) || errors.Is(err, ErrRerouted)
}

// again reports whether the call continues after err. A call that does not wait for the
// lock is retried for FailoverTime: otherwise each failover of the service, or of its Redis
// nodes, would be an error for the caller. A call that waits is never answered that the lock is held, unless its
// attempt has ended: it was broken before the answer arrived, or the caller was stopped for too long. It makes another.
// Nor does it give up at a limit for about a minute, unless that is its first answer: after a failover all calls that
// wait ask again, and may exceed the rate of their user.
func (a *Call) again(err error, elapsed time.Duration) bool {
	failedBefore := 0 < a.backoff.tries && a.backoff.tries < 60
	if !a.Try && (Matches(err, engine.ErrHeld) || failedBefore && Matches(err, engine.ErrLimit)) {
		return true
	}
	return !Final(err) && !(a.Try && (elapsed >= FailoverTime || !Transient(err) && !Matches(err, engine.ErrLost)))
}

// stale reports whether err may be due to a topology that has changed or is about to.
func (c *Core) stale(a *Call, err error) bool {
	var migrating *engine.MigratingError
	var mode *engine.ModeError
	switch {
	case c.topology == nil:
		return false
	case errors.As(err, &migrating), errors.Is(err, engine.ErrVersion), errors.Is(err, ErrRerouted):
		return true
	case errors.As(err, &mode):
		return a.Request.Mode == engine.AnyMode || mode.Have == a.Request.Mode
	}
	return false
}

// endAttempt ends the open attempt without a grant. If it may still be granted, it is released. A
// refusal rules out only the call that it answers: an earlier call of the attempt may not have
// arrived yet, or was accepted by a member with higher limits.
func (a *Call) endAttempt() {
	s := a.session
	delete(s.attempts, a.nonce)
	if a.uncertain {
		s.releaseLater(engine.Held{Session: s.id, Nonce: a.nonce, Resources: a.Request.Resources, TTL: s.key.TTL,
			Holder: a.Request.Holder, Metadata: a.Request.Metadata})
	}
	a.nonce = 0
}

// Leave ends the open attempt, if any, and the use of the session. The driver then steps
// the session.
func (c *Core) Leave(a *Call, now engine.Instant) {
	if a.session == nil {
		return
	}
	if a.nonce != 0 {
		a.endAttempt()
	}
	a.session.users--
	a.session.lastUsed = now
	if a.session.users == 0 && !a.session.open {
		c.remove(a.session)
	}
	a.session = nil
}
