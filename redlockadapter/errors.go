package redlockadapter

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease"
)

// What an operator can act on. Match with errors.Is.
var (
	// ErrNodeSetup: a node is not fit to vote. The error says why, and what to
	// change.
	ErrNodeSetup = errors.New("unusable Redis node")
	// ErrNoData: fewer than a majority of the nodes have counters, so nobody can
	// tell which tokens were granted. It matches lease.ErrUnavailable.
	ErrNoData error = noDataError{}
)

// initCommand is what decides when too few nodes have data.
const initCommand = "leased redis init --floor"

type noDataError struct{}

// Error names the command that decides.
func (noDataError) Error() string {
	return "too few Redis nodes have their data, so no token would be safe; " +
		"an operator must decide with `" + initCommand + "`, with a floor above every token that was ever granted"
}

// Is makes it match lease.ErrUnavailable: nothing has happened.
func (noDataError) Is(target error) bool { return target == lease.ErrUnavailable }

// Why a node did not vote.
var (
	errNodeDown   = errors.New("node is out of reach, and is asked again soon")
	errNodeEmpty  = errors.New("node is empty, or was restarted, and may not vote yet")
	errNotSent    = errors.New("attempt ended before it was sent")
	errLaneClosed = errors.New("backend is closed")
	errFull       = errors.New("counter has reached 2^53")
	errBusy       = errors.New("another one who shares the lock is just getting its token")
)

// setupProblem says why a node is not fit to vote. It wraps nothing: go-redis
// passes on only the innermost error of a failed connection.
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

func unsupported(what string) error {
	return fmt.Errorf("%w: %s in the efficiency mode are not switched on (Config.Shared); switch them on in all processes, or use a lock of the correctness mode",
		lease.ErrUnsupported, what)
}

// Why an attempt was lost though the lock may be free: it is tried again.
var (
	errOldEpoch = errors.New("attempt has an old epoch")
	errSplit    = errors.New("votes are split")
)
