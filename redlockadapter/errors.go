package redlockadapter

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease/engine"
)

// What a caller or an operator can act on. Match with errors.Is.
var (
	// ErrNodeSetup: a server is not fit to be a node. The error says why and what
	// to change.
	ErrNodeSetup = errors.New("unusable Redis node")
	// ErrVersion: the nodes have seen a newer version of the policies than the
	// caller acts under. Reload the topology and route the request again. It
	// matches engine.ErrUnavailable.
	ErrVersion error = unavailable("the Redis nodes have seen a newer version of the policies")
	// ErrNoState: fewer than a quorum of the nodes can report how far tokens had
	// come, so that no token would be safe. It matches engine.ErrUnavailable.
	ErrNoState error = unavailable("too few Redis nodes know how far tokens had come; " +
		"initialise a new fleet with 'leased redis init', or an emptied one with a floor above every token that was ever granted")
)

// unavailable is an error that matches engine.ErrUnavailable.
type unavailable string

// Error returns the text.
func (e unavailable) Error() string { return string(e) }

// Is makes errors.Is match engine.ErrUnavailable: nothing has happened.
func (e unavailable) Is(target error) bool { return target == engine.ErrUnavailable }

// Why a node did not accept an attempt.
var (
	errNodeDown = errors.New("node is unreachable")
	errEmpty    = errors.New("node has no state and does not vote yet")
	errFleet    = errors.New("node belongs to another fleet; all processes must list the same addresses")
	errCeiling  = errors.New("node has reached the ceiling of its tokens")
	errEnded    = errors.New("attempt has ended")
	errNotSent  = errors.New("request was canceled before it was sent")
	errClosed   = errors.New("backend is closed")
	errSplit    = errors.New("votes are split")
)

// setupProblem says why a server is not fit to be a node. It wraps nothing:
// go-redis passes on only the innermost error of a failed connection.
type setupProblem struct {
	addr, why string
}

// Error names the node and what to change.
func (p *setupProblem) Error() string { return fmt.Sprintf("%v: %s: %s", ErrNodeSetup, p.addr, p.why) }

// Is makes errors.Is match ErrNodeSetup.
func (p *setupProblem) Is(target error) bool { return target == ErrNodeSetup }

func setupError(addr, format string, args ...any) error {
	return &setupProblem{addr, fmt.Sprintf(format, args...)}
}

// endedError is the answer to an attempt that was released.
func endedError(nonce engine.Nonce) error {
	return fmt.Errorf("%w: attempt %d has ended", engine.ErrHeld, nonce)
}
