package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// The codes of an Error that Go code compares with; kinds has all codes.
const (
	CodeHeld         = "held"
	CodeUnavailable  = "unavailable"
	CodeNotLeader    = "not-leader"
	CodeModeMismatch = "mode-mismatch"
	CodeInternal     = "internal"
)

// The exit codes of the commands. Except for the first two they are high, so that they
// rarely collide with those of a command under `leased run`.
const (
	ExitError       = 1   // any other failure
	ExitUsage       = 2   // the command line, the configuration or the request is wrong
	ExitLimit       = 118 // the call would exceed a limit
	ExitForbidden   = 119 // the user lacks a right
	ExitHeld        = 120 // others hold the lock
	ExitLost        = 121 // the lease was lost, or is not held
	ExitUnavailable = 122 // the service cannot be reached, and nothing has happened
	ExitUncertain   = 123 // it may or may not have happened
	ExitRefused     = 124 // the lock's mode or number of permits does not allow it, or the caller is unknown
)

// The errors of the service that package engine does not define. Match them with
// errors.Is.
var (
	// ErrOutdated reports that the policies have changed since the caller read them.
	ErrOutdated = errors.New("version is outdated")
	// ErrTooLarge reports that a request is larger than the service accepts. It matches
	// engine.ErrInvalid.
	ErrTooLarge = fmt.Errorf("%w: the request is too large", engine.ErrInvalid)
	// ErrBehind reports that a member cannot vote yet because its log is behind.
	ErrBehind = errors.New("node is behind")
	// ErrNotLeader reports that another member is the leader. It matches
	// engine.ErrUnavailable. The error is a *NotLeaderError.
	ErrNotLeader = engine.Special("member is not the leader", engine.ErrUnavailable)
	// ErrUnreachable reports that no member of the service could be reached. It
	// matches engine.ErrUnavailable.
	ErrUnreachable = engine.Special("no member of the lock service can be reached", engine.ErrUnavailable)
	// ErrUnauthenticated reports that the service has users and the call carried
	// no valid secret. It matches engine.ErrUnavailable: the service rejected the
	// call before it looked at the request, so the error says nothing about
	// earlier calls of the same attempt.
	ErrUnauthenticated = engine.Special("not authenticated", engine.ErrUnavailable)
)

// Kind is one kind of error: how each interface of the service reports it, and
// what to do about it. The hint holds for HTTP, Go and the command line alike.
type Kind struct {
	Code     string
	Sentinel error
	GRPC     codes.Code
	HTTP     int
	Exit     int
	Hint     string
	Retry    time.Duration // after which a retry can help; 0 if it does not help
}

// soon is the time in which most changes of a leader are over.
const soon = 500 * time.Millisecond

// kinds is the table of errors. KindOf takes the first row that matches: an error
// that may have taken effect is uncertain whatever else it is, and special cases
// come before the general one.
var kinds = []Kind{
	{"uncertain", engine.ErrUncertain, codes.Unknown, http.StatusGatewayTimeout, ExitUncertain,
		"it may or may not have happened: look before you repeat it; an acquire can be repeated with its session and nonce",
		soon},
	{"unauthenticated", ErrUnauthenticated, codes.Unauthenticated, http.StatusUnauthorized, ExitRefused,
		"authenticate with a secret from `leased user add`: the header \"Authorization: Bearer SECRET\", or for commands " +
			"--secret-file, LEASED_CLIENT_SECRET_FILE or LEASED_SECRET", 0},
	{"forbidden", engine.ErrForbidden, codes.PermissionDenied, http.StatusForbidden, ExitForbidden,
		"if the message names a right, ask an administrator for it: `leased user allow`", 0},
	{"limit", engine.ErrLimit, codes.ResourceExhausted, http.StatusTooManyRequests, ExitLimit,
		"release what is not needed, slow down, or ask an administrator to raise the limit that the message names",
		time.Second},
	{"too-large", ErrTooLarge, codes.ResourceExhausted, http.StatusRequestEntityTooLarge, ExitUsage,
		"send a smaller request, or ask an administrator to raise the limit that the message names", 0},
	{"permits-mismatch", engine.ErrPermits, codes.FailedPrecondition, http.StatusConflict, ExitRefused,
		"use the number of permits that the message names; it can change while no permit is held or waited for", 0},
	{CodeModeMismatch, engine.ErrModeMismatch, codes.FailedPrecondition, http.StatusConflict, ExitRefused,
		"request no mode to take the lock in the mode that it has, or change its policy with `leased policy set`", 0},
	{CodeHeld, engine.ErrHeld, codes.FailedPrecondition, http.StatusConflict, ExitHeld,
		"wait for the lock, or try again later; inspect the lock to see its holder", time.Second},
	{"not-held", engine.ErrNotHeld, codes.NotFound, http.StatusNotFound, ExitLost,
		"if the lease was yours, stop writing and acquire again for a new token", 0},
	{"expired", engine.ErrExpired, codes.NotFound, http.StatusGone, ExitLost,
		"stop writing; acquire again for a new token, and renew it before its TTL passes", 0},
	{"taken", engine.ErrTaken, codes.NotFound, http.StatusGone, ExitLost,
		"stop writing; acquire again for a new token", 0},
	{"lost", engine.ErrLost, codes.NotFound, http.StatusGone, ExitLost,
		"stop writing; acquire again for a new token", 0},
	{"released", engine.ErrReleased, codes.NotFound, http.StatusGone, ExitLost,
		"the holder released the lease: acquire again for a new token", 0},
	{"unsupported", engine.ErrUnsupported, codes.Unimplemented, http.StatusNotImplemented, ExitRefused,
		"change what the message names: the mode of the lock (`leased policy set PREFIX --mode correctness`), or a " +
			"setting of the service", 0},
	{"invalid-resource", fencing.ErrInvalidResource, codes.InvalidArgument, http.StatusBadRequest, ExitUsage,
		"use a name that follows the rule in the message", 0},
	{"invalid", engine.ErrInvalid, codes.InvalidArgument, http.StatusBadRequest, ExitUsage,
		"correct the request as the message says", 0},
	{"outdated", ErrOutdated, codes.Aborted, http.StatusConflict, ExitError,
		"read the policies again and repeat the change with their version", 0},
	{"behind", ErrBehind, codes.FailedPrecondition, http.StatusConflict, ExitError,
		"try again when the member has caught up", time.Second},
	{CodeNotLeader, ErrNotLeader, codes.Unavailable, http.StatusServiceUnavailable, ExitUnavailable,
		"send the request to the leader; if none is known, try again in a moment", soon},
	{"unreachable", ErrUnreachable, codes.Unavailable, http.StatusServiceUnavailable, ExitUnavailable,
		"check that the service runs and that the address is right; `leased dev` starts one, and commands take the " +
			"address from --endpoint or LEASED_ENDPOINT", soon},
	{CodeUnavailable, engine.ErrUnavailable, codes.Unavailable, http.StatusServiceUnavailable, ExitUnavailable,
		"nothing has happened: try again in a moment", soon},
	{"canceled", context.Canceled, codes.Canceled, http.StatusInternalServerError, ExitError,
		"the caller canceled the request", 0},
	{"deadline", context.DeadlineExceeded, codes.DeadlineExceeded, http.StatusGatewayTimeout, ExitError,
		"allow more time for the request", 0},
	// The last row is the kind of every error that matches none of the sentinels.
	// The contract of engine.Backend makes such an error uncertain.
	{CodeInternal, engine.ErrUncertain, codes.Internal, http.StatusInternalServerError, ExitError,
		"see the message; if a request to the service failed with it, the request may or may not have taken effect", 0},
}

// Codes returns all codes that an Error can have.
func Codes() []string {
	codes := make([]string, len(kinds))
	for i := range kinds {
		codes[i] = kinds[i].Code
	}
	return codes
}

// StatusOf returns the HTTP status of a code, 0 if there is no such code.
func StatusOf(code string) int {
	for i := range kinds {
		if kinds[i].Code == code {
			return kinds[i].HTTP
		}
	}
	return 0
}

// KindOf returns the kind of err. An error that matches no sentinel has
// CodeInternal: on the command line it may be a local failure, such as a file
// that cannot be read.
func KindOf(err error) Kind {
	for _, k := range kinds {
		if errors.Is(err, k.Sentinel) {
			return k
		}
	}
	return kinds[len(kinds)-1]
}
