package redlockadapter

import (
	"errors"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// Errors that a caller or an operator can act on. Match with errors.Is.
var (
	// ErrNodeSetup: a server must not be a node. The error says why and what to change.
	ErrNodeSetup = redisconn.ErrSetup
	// ErrNoState: fewer than a quorum of the nodes can report which tokens were granted,
	// so no token would be safe. An operator must initialise them, with the command in the
	// error; Acquire does not wait for that. The error also matches engine.ErrUnavailable.
	ErrNoState = engine.ErrNoState
)

var (
	// errSplit: concurrent attempts divided the votes, and none has a quorum.
	errSplit = errors.New("votes are split")
	// errNoAnswer: a node had not answered when the attempt was decided.
	errNoAnswer = errors.New("node has not answered")
)

// heldError reports a lock with another holder. It matches engine.ErrHeld.
type heldError struct {
	freeAfter time.Duration // when a quorum will be free, if nothing is renewed or released
}

// Error says that the lock is held.
func (e *heldError) Error() string { return engine.ErrHeld.Error() }

// Is makes errors.Is match engine.ErrHeld.
func (e *heldError) Is(target error) bool { return target == engine.ErrHeld }
