package lease

import (
	"context"
	"errors"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// The errors that a caller can act on. Match them with errors.Is.
var (
	// ErrHeld reports that the lock was not granted because others hold it or
	// queue before the caller. Wait, or try again later.
	ErrHeld = engine.ErrHeld

	// ErrLost reports that the lease ended other than by Release. Stop writing;
	// the next Acquire gets a new token. ErrNotHeld, ErrExpired and ErrTaken
	// match it too.
	ErrLost = engine.ErrLost
	// ErrNotHeld reports that the service has no such lease.
	ErrNotHeld = engine.ErrNotHeld
	// ErrExpired reports that the TTL of the lease passed without a renewal.
	ErrExpired = engine.ErrExpired
	// ErrTaken reports that another client holds the lock now, or that an operator
	// broke the lease.
	ErrTaken = engine.ErrTaken

	// ErrReleased reports that the holder released the lease.
	ErrReleased = engine.ErrReleased

	// ErrUnavailable reports that the service could not serve the call, which had no
	// effect. Trying again is safe.
	ErrUnavailable = engine.ErrUnavailable
	// ErrUncertain reports that the request may or may not have taken effect.
	ErrUncertain = engine.ErrUncertain

	// ErrModeMismatch reports that the lock does not have the mode that the
	// caller expects. The error is an *engine.ModeError.
	ErrModeMismatch = engine.ErrModeMismatch
	// ErrUnsupported reports that the lock's mode does not support the request.
	// The message names a mode that does.
	ErrUnsupported = engine.ErrUnsupported
	// ErrPermits reports that the lock's permits are held with another total.
	ErrPermits = engine.ErrPermits
	// ErrForbidden reports that the user lacks a right, which the error names.
	ErrForbidden = engine.ErrForbidden
	// ErrLimit reports that the call would exceed a limit, which the error names.
	ErrLimit = engine.ErrLimit
	// ErrInvalid reports a request that breaks a rule. The message names the rule.
	ErrInvalid = engine.ErrInvalid
	// ErrClosed reports that the Client was closed.
	ErrClosed = clientcore.ErrClosed
)

// codes has the code of each error, in the order in which Code compares them. An error
// that may have taken effect is uncertain whatever else it is.
var codes = []struct {
	err  error
	code string
}{
	{ErrUncertain, "uncertain"},
	{ErrClosed, "closed"},
	{ErrForbidden, "forbidden"},
	{ErrLimit, "limit"},
	{ErrPermits, "permits-mismatch"},
	{ErrModeMismatch, "mode-mismatch"},
	{ErrHeld, "held"},
	{ErrNotHeld, "not-held"},
	{ErrExpired, "expired"},
	{ErrTaken, "taken"},
	{ErrLost, "lost"},
	{ErrReleased, "released"},
	{ErrUnsupported, "unsupported"},
	{fencing.ErrStale, "stale"},
	{fencing.ErrNoToken, "no-token"},
	{fencing.ErrJump, "jump"},
	{fencing.ErrInvalidToken, "invalid-token"},
	{fencing.ErrInvalidResource, "invalid-resource"},
	{ErrInvalid, "invalid"},
	{ErrUnavailable, "unavailable"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}

// Code returns the code of an error, such as "held", for the labels of metrics and
// traces: a service uses the same codes. The refusals of a gate have codes too, such as
// "stale": a function that runs under a lease often returns one. Code returns "" for nil, and
// "internal" for an error that neither this package nor package fencing defines.
func Code(err error) string {
	if err == nil {
		return ""
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "internal"
}
