package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// NotLeaderError reports that another member is the leader. The request had no
// effect. It matches ErrNotLeader and engine.ErrUnavailable.
type NotLeaderError struct {
	Leader string // the API address of the leader, empty if unknown
	Text   string
}

// Error returns the text.
func (e *NotLeaderError) Error() string { return e.Text }

// Is makes errors.Is match ErrNotLeader and engine.ErrUnavailable.
func (e *NotLeaderError) Is(target error) bool {
	return target == ErrNotLeader || target == engine.ErrUnavailable
}

// FromError converts err to a message. For a *engine.MigratingError, mode is the
// mode that the lock leaves and expected_mode the one that it gets.
func FromError(err error) *pb.Error {
	if err == nil {
		return nil
	}
	k := KindOf(err)
	e := &pb.Error{Code: k.Code, Message: err.Error(), Hint: k.Hint}
	var mode *engine.ModeError
	if k.Code == CodeModeMismatch && errors.As(err, &mode) {
		e.Resource, e.ExpectedMode, e.Mode = string(mode.Resource), ModeText(mode.Want), ModeText(mode.Have)
	}
	var moving *engine.MigratingError
	if k.Code == CodeUnavailable && errors.As(err, &moving) {
		e.Resource, e.Mode, e.ExpectedMode = string(moving.Resource), ModeText(moving.From), ModeText(moving.To)
	}
	var notLeader *NotLeaderError
	if k.Code == CodeNotLeader && errors.As(err, &notLeader) {
		e.Leader = notLeader.Leader
	}
	var held *engine.HeldError
	if k.Code == CodeHeld && errors.As(err, &held) {
		e.Resource, e.HeldBy, e.Position = string(held.Resource), FromParty(&held.By, time.Time{}), int32(held.Position)
		e.HeldBy.Age = "" // only a clock knows it
		if left := held.By.TTL; left > 0 {
			k.Retry = min(k.Retry, left)
		}
	}
	var after interface{ RetryAfter() time.Duration }
	if errors.As(err, &after) {
		k.Retry = after.RetryAfter()
	}
	e.RetryAfter = DurationText(k.Retry)
	return e
}

// ToError converts a message back to an error that matches the same sentinels
// and has the same text.
func ToError(e *pb.Error) error {
	if e == nil {
		return nil
	}
	after, _ := time.ParseDuration(e.RetryAfter)
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
			return &engine.MigratingError{Resource: fencing.Resource(e.Resource), From: from, To: to}
		}
	case CodeHeld:
		if e.HeldBy == nil {
			break
		}
		if parties, err := toParties([]*pb.Party{e.HeldBy}); err == nil {
			return &engine.HeldError{Err: &remoteError{e.Message, engine.ErrHeld, after},
				Resource: fencing.Resource(e.Resource),
				By:       parties[0], Position: int(e.Position)}
		}
	case CodeNotLeader:
		return &NotLeaderError{Leader: e.Leader, Text: e.Message}
	}
	for _, k := range kinds {
		if k.Code == e.Code {
			return &remoteError{e.Message, k.Sentinel, after}
		}
	}
	return fmt.Errorf("%w: the service answered %q: %s", engine.ErrUncertain, e.Code, e.Message)
}

// remoteError is an error that the service reported.
type remoteError struct {
	text     string
	sentinel error
	after    time.Duration
}

// Error returns the text that the service sent.
func (e *remoteError) Error() string { return e.text }

// RetryAfter returns when the service wants to be asked again.
func (e *remoteError) RetryAfter() time.Duration { return e.after }

// Unwrap returns the sentinel.
func (e *remoteError) Unwrap() error { return e.sentinel }

// ToStatus converts err to a gRPC status with an Error in its details.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	e := FromError(err)
	s, detailErr := status.New(KindOf(err).GRPC, e.Message).WithDetails(e)
	if detailErr != nil {
		return status.Error(codes.Internal, e.Message)
	}
	return s.Err()
}

// FromStatus converts the error of a gRPC call. A status without an Error in its
// details comes from the transport, not from the service: the call may or may
// not have arrived, so it is uncertain.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	if e := answerIn(s); e != nil {
		return ToError(e)
	}
	switch s.Code() {
	case codes.Unimplemented:
		if unknownCall(s.Message()) {
			return fmt.Errorf("%w: the member does not have this call (%s); upgrade the member, or use a client of its version",
				engine.ErrUnsupported, s.Message())
		}
	case codes.Canceled:
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.DeadlineExceeded)
	}
	return fmt.Errorf("%w: %w", engine.ErrUncertain, err)
}

// IsAnswer reports whether the error of a gRPC call comes from the service: the call has arrived.
func IsAnswer(err error) bool {
	s := status.Convert(err)
	return answerIn(s) != nil || s.Code() == codes.Unimplemented && unknownCall(s.Message())
}

// answerIn returns the Error of the service in a status, nil if there is none.
func answerIn(s *status.Status) *pb.Error {
	for _, detail := range s.Details() {
		if e, ok := detail.(*pb.Error); ok {
			return e
		}
	}
	return nil
}

// unknownCall reports whether a gRPC server refused a call because it does not have the
// method. Other errors with the code Unimplemented may have another cause.
func unknownCall(message string) bool {
	return strings.HasPrefix(message, "unknown method ") || strings.HasPrefix(message, "unknown service ")
}
