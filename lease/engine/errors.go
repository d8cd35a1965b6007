package engine

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
)

// What a caller can act on. Match with errors.Is.
var (
	// ErrHeld: not granted, because others hold the lock or wait before us.
	// Wait, or try again later.
	ErrHeld = errors.New("lock is held")

	// ErrLost: the lease has ended other than by Release. Stop writing; the
	// next Acquire gets a new token. The three errors below match it too.
	ErrLost = errors.New("lease is lost")
	// ErrNotHeld: the service knows of no such lease.
	ErrNotHeld = lossError("lease is not held")
	// ErrExpired: the time of the lease has run out.
	ErrExpired = lossError("lease has expired")
	// ErrTaken: someone else holds the lock now, or an operator has broken it.
	ErrTaken = lossError("lease was taken away")

	// ErrReleased: the holder has released the lease.
	ErrReleased = errors.New("lease is released")

	// ErrUnavailable: the service could not be asked, and this call has done
	// nothing. Trying again is safe.
	ErrUnavailable = errors.New("lock service is unavailable")
	// ErrUncertain: the request may or may not have taken effect. It is never
	// returned for a refusal. Trying again with the same nonce finds out.
	ErrUncertain = errors.New("outcome is uncertain")

	// ErrModeMismatch: the caller's idea of the lock's mode is not the lock's.
	// The error is a *ModeError.
	ErrModeMismatch = errors.New("lock has another mode")
	// ErrUnsupported: this backend cannot give what was asked with sound
	// tokens. The error names one that can.
	ErrUnsupported = errors.New("not supported in this mode")
	// ErrInvalid: the request breaks a rule, which the error names.
	ErrInvalid = errors.New("invalid request")
)

// lossError is one way to lose a lease; each matches ErrLost.
type lossError string

// Error is the text.
func (e lossError) Error() string { return string(e) }

// Is makes every loss match ErrLost.
func (e lossError) Is(target error) bool { return target == ErrLost }

// ModeError says that a lock has another mode than the caller expects. It
// matches ErrModeMismatch.
type ModeError struct {
	Resource fencing.Resource
	Want     Mode // what the caller expects
	Have     Mode // what the lock has
}

// Error names both modes and what to do.
func (e *ModeError) Error() string {
	return fmt.Sprintf("lock %q has mode %s, the caller expects %s; the mode belongs to the lock: change the caller, or the lock's policy for all",
		string(e.Resource), e.Have, e.Want)
}

// Is makes errors.Is match ErrModeMismatch.
func (e *ModeError) Is(target error) bool { return target == ErrModeMismatch }
