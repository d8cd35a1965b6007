package engine

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
)

// Errors that a caller can act on. Match them with errors.Is.
var (
	// ErrHeld: not granted, because others hold the lock or are ahead in the queue.
	// Wait, or try again later.
	ErrHeld = errors.New("lock is held")

	// ErrLost: the lease has ended without a Release. Stop writing; the next Acquire
	// gets a new token. The three errors below match it too.
	ErrLost = errors.New("lease is lost")
	// ErrNotHeld: the service has no such lease.
	ErrNotHeld = Special("lease is not held", ErrLost)
	// ErrExpired: the lease was not renewed in time.
	ErrExpired = Special("lease has expired", ErrLost)
	// ErrTaken: another client holds the lock now, or an operator broke the lease.
	ErrTaken = Special("lease was taken away", ErrLost)

	// ErrReleased: the holder has released the lease.
	ErrReleased = errors.New("lease is released")

	// ErrUnavailable: the service could not serve the call, which had no effect.
	// Trying again is safe.
	ErrUnavailable = errors.New("lock service is unavailable")
	// ErrUncertain: the request may or may not have taken effect. It is never
	// returned for a refusal. Trying again with the same nonce gives the outcome.
	ErrUncertain = errors.New("outcome is uncertain")

	// ErrModeMismatch: the lock does not have the mode that the caller expects. The
	// error is a *ModeError.
	ErrModeMismatch = errors.New("lock has another mode")
	// ErrUnsupported: this mode or this service does not support the request. The error
	// names what does.
	ErrUnsupported = errors.New("not supported")
	// ErrPermits: the lock's permits are held or waited for with another number of
	// permits in total, which belongs to the lock.
	ErrPermits = errors.New("lock has another number of permits")
	// ErrForbidden: the user lacks a right, which the error names. The call had no
	// effect.
	ErrForbidden = errors.New("forbidden")
	// ErrLimit: the call would exceed a limit, which the error names. The call had no
	// effect.
	ErrLimit = errors.New("limit exceeded")
	// ErrInvalid: the request breaks a rule, which the error names.
	ErrInvalid = errors.New("invalid request")

	// ErrVersion: the Redis nodes have seen a newer version of the policies than the caller acts
	// under. Reload the topology and route the request again. It matches ErrUnavailable.
	ErrVersion = Special("the Redis nodes have seen a newer version of the policies", ErrUnavailable)
	// ErrNoState: fewer than a quorum of the Redis nodes can report which tokens were granted, so no
	// token would be safe. It matches ErrUnavailable, but only an operator can change it: trying again
	// does not help.
	ErrNoState = Special("fewer than a quorum of the Redis nodes can report which tokens were granted", ErrUnavailable)
)

// Special returns an error with this text that matches general: a special case of it.
func Special(text string, general error) error { return &specialError{text, general} }

type specialError struct {
	text    string
	general error
}

func (e *specialError) Error() string { return e.text }
func (e *specialError) Unwrap() error { return e.general }

// Refused reports whether err means that an attempt was not granted and never will be, so
// that it need not be released unless an earlier call of it was not answered.
// ErrUnavailable, ErrForbidden and ErrLimit are not refusals: they describe one call.
func Refused(err error) bool {
	for _, sentinel := range []error{ErrHeld, ErrModeMismatch, ErrUnsupported, ErrPermits, ErrInvalid} {
		if errors.Is(err, sentinel) {
			return !errors.Is(err, ErrUncertain)
		}
	}
	return false
}

// HeldError reports who holds a lock. It matches ErrHeld.
type HeldError struct {
	Err      error // matches ErrHeld, and has the text
	Resource fencing.Resource
	By       Party // a holder, as far as the caller may see it
	Position int   // the place in the queue that the next waiter gets, from 1; 0 if it is unknown
}

// Error returns the text.
func (e *HeldError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *HeldError) Unwrap() error { return e.Err }

// ModeError reports that a lock has another mode than the caller expects. It matches
// ErrModeMismatch.
type ModeError struct {
	Resource fencing.Resource
	Want     Mode // the mode that the caller expects
	Have     Mode // the mode of the lock
}

// Error names both modes and what to do.
func (e *ModeError) Error() string {
	return fmt.Sprintf("lock %q has mode %s, the caller expects %s; the mode belongs to the lock: change the caller, "+
		"or the lock's policy for all",
		string(e.Resource), e.Have, e.Want)
}

// Is makes errors.Is match ErrModeMismatch.
func (e *ModeError) Is(target error) bool { return target == ErrModeMismatch }
