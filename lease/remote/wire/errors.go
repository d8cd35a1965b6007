package wire

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// The codes of an Error.
const (
	CodeHeld            = "held"
	CodeLost            = "lost"
	CodeNotHeld         = "not-held"
	CodeExpired         = "expired"
	CodeTaken           = "taken"
	CodeReleased        = "released"
	CodeUnavailable     = "unavailable"
	CodeNotLeader       = "not-leader"
	CodeUncertain       = "uncertain"
	CodeModeMismatch    = "mode-mismatch"
	CodeUnsupported     = "unsupported"
	CodeInvalid         = "invalid"
	CodeInvalidResource = "invalid-resource"
	CodeOutdated        = "outdated"
	CodeBehind          = "behind"
	CodeCanceled        = "canceled"
	CodeDeadline        = "deadline"
	CodeUnauthenticated = "unauthenticated"
)

// ErrOutdated: what was to be changed has changed since it was read. Read it
// again.
var ErrOutdated = errors.New("version is outdated")

// ErrBehind: a node that is to vote has not caught up yet.
var ErrBehind = errors.New("node is behind")

// ErrUnauthenticated: the service asks who calls, and the call had no secret of
// one of its users. It was refused at the door: like engine.ErrUnavailable, which
// it matches, it says nothing of earlier calls, and so not that an attempt has
// failed for good.
var ErrUnauthenticated error = doorError("not authenticated")

// doorError is a refusal before anything was looked at.
type doorError string

// Error is the text.
func (e doorError) Error() string { return string(e) }

// Is makes errors.Is match engine.ErrUnavailable.
func (e doorError) Is(target error) bool { return target == engine.ErrUnavailable }

// kind is one code: the error that it stands for, its gRPC code, and what to do.
type kind struct {
	code     string
	sentinel error
	grpc     codes.Code
	hint     string
}

// kinds are in the order in which an error is tried: one that may have taken
// effect is uncertain, whatever else it is, and the special comes before the
// general.
var kinds = []kind{
	{CodeUncertain, engine.ErrUncertain, codes.Unknown, "it may or may not have happened: repeat the call with the same session id and nonce to find out"},
	{CodeModeMismatch, engine.ErrModeMismatch, codes.FailedPrecondition, "leave mode out to take the lock as it is, or change its policy for all"},
	{CodeHeld, engine.ErrHeld, codes.FailedPrecondition, "wait for it with \"wait\", or try again later; Inspect tells who holds it"},
	{CodeNotHeld, engine.ErrNotHeld, codes.NotFound, "there is no such lease: if it was yours, stop writing and acquire again"},
	{CodeExpired, engine.ErrExpired, codes.NotFound, "stop writing; acquire again for a new token, and renew it in less than its ttl"},
	{CodeTaken, engine.ErrTaken, codes.NotFound, "stop writing; acquire again for a new token"},
	{CodeLost, engine.ErrLost, codes.NotFound, "stop writing; acquire again for a new token"},
	{CodeReleased, engine.ErrReleased, codes.NotFound, "the holder has given it back: acquire again for a new token"},
	{CodeUnsupported, engine.ErrUnsupported, codes.Unimplemented, "use a lock in correctness mode, or move this one: `leased policy set PREFIX --mode correctness`"},
	{CodeInvalidResource, fencing.ErrInvalidResource, codes.InvalidArgument, "change the name"},
	{CodeInvalid, engine.ErrInvalid, codes.InvalidArgument, "change the request as the message says"},
	{CodeOutdated, ErrOutdated, codes.Aborted, "read the policies again and repeat with their version"},
	{CodeBehind, ErrBehind, codes.FailedPrecondition, "ask again when it has caught up"},
	{CodeNotLeader, nil, codes.Unavailable, "ask the leader"},
	{CodeUnauthenticated, ErrUnauthenticated, codes.Unauthenticated, "send the header \"Authorization: Bearer SECRET\" with a secret of `leased user add`; " +
		"commands take it from --secret-file, LEASED_SECRET_FILE or LEASED_SECRET"},
	{CodeUnavailable, engine.ErrUnavailable, codes.Unavailable, "nothing has happened: try again in a moment"},
	{CodeCanceled, context.Canceled, codes.Canceled, "the caller has ended the call"},
	{CodeDeadline, context.DeadlineExceeded, codes.DeadlineExceeded, "give the call more time"},
}

// NotLeaderError says that another member serves. Nothing has happened. It
// matches engine.ErrUnavailable.
type NotLeaderError struct {
	Leader string // the address of its API, empty if not known
	Text   string
}

// Error is the text.
func (e *NotLeaderError) Error() string { return e.Text }

// Is makes errors.Is match engine.ErrUnavailable.
func (e *NotLeaderError) Is(target error) bool { return target == engine.ErrUnavailable }

// FromError is err as a message. A *engine.MovingError has the mode that the lock
// is leaving in mode, and the one that it moves to in expected_mode. An error that is none of the known ones may
// have taken effect, as the contract of engine.Backend says.
func FromError(err error) *pb.Error {
	if err == nil {
		return nil
	}
	k := kindOf(err)
	e := &pb.Error{Code: k.code, Message: err.Error(), Hint: k.hint}
	var mode *engine.ModeError
	if k.code == CodeModeMismatch && errors.As(err, &mode) {
		e.Resource, e.ExpectedMode, e.Mode = string(mode.Resource), ModeText(mode.Want), ModeText(mode.Have)
	}
	var moving *engine.MovingError
	if k.code == CodeUnavailable && errors.As(err, &moving) {
		e.Resource, e.Mode, e.ExpectedMode = string(moving.Resource), ModeText(moving.From), ModeText(moving.To)
		e.Hint = "the lock is changing its mode: wait for it, or try again when `leased policy show` says that it is complete"
	}
	var notLeader *NotLeaderError
	if k.code == CodeNotLeader && errors.As(err, &notLeader) {
		e.Leader = notLeader.Leader
		if e.Leader == "" {
			e.Hint = "no leader is known at the moment: try again, or ask another member"
		}
	}
	return e
}

func kindOf(err error) kind {
	var notLeader *NotLeaderError
	for _, k := range kinds {
		if k.sentinel != nil && errors.Is(err, k.sentinel) || k.sentinel == nil && errors.As(err, &notLeader) {
			return k
		}
	}
	return kinds[0]
}

// ToError is a message as the error that it was made from: it matches the same
// sentinels and has the same text.
func ToError(e *pb.Error) error {
	if e == nil {
		return nil
	}
	switch e.Code {
	case CodeModeMismatch:
		want, wantErr := ParseMode(e.ExpectedMode)
		have, haveErr := ParseMode(e.Mode)
		if wantErr == nil && haveErr == nil {
			return &engine.ModeError{Resource: fencing.Resource(e.Resource), Want: want, Have: have}
		}
	case CodeUnavailable:
		from, fromErr := ParseMode(e.Mode)
		to, toErr := ParseMode(e.ExpectedMode)
		if e.Resource != "" && fromErr == nil && toErr == nil {
			return &engine.MovingError{Resource: fencing.Resource(e.Resource), From: from, To: to}
		}
	case CodeNotLeader:
		return &NotLeaderError{Leader: e.Leader, Text: e.Message}
	}
	for _, k := range kinds {
		if k.code == e.Code {
			return &remoteError{text: e.Message, sentinel: k.sentinel}
		}
	}
	return fmt.Errorf("%w: the service answered %q: %s", engine.ErrUncertain, e.Code, e.Message)
}

// remoteError is an error of the other side.
type remoteError struct {
	text     string
	sentinel error
}

// Error is the text as the other side wrote it.
func (e *remoteError) Error() string { return e.text }

// Unwrap is what it means.
func (e *remoteError) Unwrap() error { return e.sentinel }

// ToStatus is err as a gRPC status, with an Error in its details.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	e := FromError(err)
	s, detailErr := status.New(kindOf(err).grpc, e.Message).WithDetails(e)
	if detailErr != nil {
		return status.Error(codes.Internal, e.Message)
	}
	return s.Err()
}

// FromStatus is the error of a gRPC call. One without our details comes from the
// way, not from the service, and then nobody knows whether the call arrived.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	for _, detail := range s.Details() {
		if e, ok := detail.(*pb.Error); ok {
			return ToError(e)
		}
	}
	switch s.Code() {
	case codes.Canceled:
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.DeadlineExceeded)
	}
	return fmt.Errorf("%w: %w", engine.ErrUncertain, err)
}
