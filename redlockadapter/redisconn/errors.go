package redisconn

import (
	"errors"
	"fmt"
)

// Why a request failed. Match with errors.Is.
var (
	// ErrSetup reports a server that must not be a node. The error says why, and what
	// to change.
	ErrSetup = errors.New("unusable Redis node")
	// ErrDown reports a server that cannot be reached, or a connection that broke.
	ErrDown = errors.New("node is unreachable")
	// ErrLife reports a request for a different run of the server than the connected one.
	ErrLife = errors.New("the address leads to a server that does not vote yet")
	// ErrNotPermitted reports a request that an ACL of the server forbids to the user of the connection. A script may
	// have stopped in the middle.
	ErrNotPermitted = errors.New("the Redis user lacks a permission")
	// ErrCanceled reports a request that was canceled before it was sent.
	ErrCanceled = errors.New("request was canceled before it was sent")
	// ErrClosed reports a request on a closed Conn.
	ErrClosed = errors.New("backend is closed")
	// ErrProtocol reports a reply that cannot be understood.
	ErrProtocol = errors.New("unexpected reply of Redis")
)

// setupError explains an ErrSetup. It wraps nothing: go-redis passes on only the
// innermost error of a failed connection.
type setupError struct {
	addr, reason string
}

// SetupError returns an error that matches ErrSetup and names the server.
func SetupError(addr, format string, args ...any) error {
	return &setupError{addr, fmt.Sprintf(format, args...)}
}

// Error names the node and what to change.
func (e *setupError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrSetup, e.addr, e.reason) }

// Is makes errors.Is match ErrSetup.
func (e *setupError) Is(target error) bool { return target == ErrSetup }
