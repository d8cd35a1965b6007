//go:build unix

package supervise

import "errors"

// What a caller can act on. Match with errors.Is.
var (
	// ErrNotFound: there is no such command.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable: the command exists and cannot be run.
	ErrNotExecutable = errors.New("command cannot be run")
	// ErrEnding: the lease was not renewed, and its deadline is near.
	ErrEnding = errors.New("lease was not renewed in time")
	// ErrGuard: the guard could not be started, or has ended by itself.
	ErrGuard = errors.New("guard process has ended")
)
