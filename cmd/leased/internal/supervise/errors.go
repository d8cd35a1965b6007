//go:build unix

package supervise

import "errors"

// Errors that a caller can act on. Match them with errors.Is.
var (
	// ErrNotFound reports that the command does not exist.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable reports that the command exists but cannot be executed.
	ErrNotExecutable = errors.New("command cannot be executed")
	// ErrNotRenewed reports that the lease was not renewed and its deadline is near.
	ErrNotRenewed = errors.New("lease was not renewed in time")
	// ErrGuard reports that the guard could not be started, or has exited.
	ErrGuard = errors.New("guard process failed")
)
