package machine

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

var (
	// ErrExhausted: the call had no effect, and repeating it will not help.
	ErrExhausted = fmt.Errorf("%w: all tokens up to %d are used up, and gates refuse smaller ones", engine.ErrUnavailable,
		fencing.MaxToken)
	// ErrNotReady: the log has not been reconciled with the Redis nodes yet. It matches
	// engine.ErrUnavailable.
	ErrNotReady = fmt.Errorf("%w: the service has not caught up with the Redis nodes", engine.ErrUnavailable)
)

// Refusal returns the error for the result of an Acquire, nil if it was granted.
func (r Result) Refusal(request *engine.Request) error {
	switch r.Code {
	case Granted:
		return nil
	case Held:
		return engine.ErrHeld
	case Ended:
		return fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, request.Nonce)
	case NoSession:
		return engine.ErrExpired
	case Exhausted:
		return ErrExhausted
	case WrongMode:
		return &engine.ModeError{Resource: r.Resource, Want: engine.Correctness, Have: r.Mode}
	case OtherPermits:
		return engine.Special(fmt.Sprintf("lock %q has %d permits while any of them is held or waited for, not %d; "+
			"request %[2]d, or change the number after all permits are released", string(r.Resource), r.Permits,
			request.Permits), engine.ErrPermits)
	case OtherRequest:
		return fmt.Errorf("%w: attempt %d is for other locks or of another kind, not for %q (%s); use a new nonce",
			engine.ErrInvalid, request.Nonce, request.Resources, request.Kind)
	case LowNonce:
		return fmt.Errorf("%w: nonce %d must be above %d, because a session remembers at most %d separate ranges of used "+
			"nonces; "+
			"count nonces upwards from 1, or open another session", engine.ErrLimit, request.Nonce, r.Nonce, MaxEnded)
	case Limited:
		return r.Limit
	case NotReady:
		return fmt.Errorf("%w; see 'leased redis status'", ErrNotReady)
	case Migrating:
		return &engine.MigratingError{Resource: r.Resource, From: r.Mode, To: r.Next}
	}
	return fmt.Errorf("%w: the machine answered %s", engine.ErrUncertain, r.Code)
}
