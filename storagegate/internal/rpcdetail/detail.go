// Package rpcdetail converts refusals for grpcgate and connectgate. Both use the
// same code and the same google.rpc.ErrorInfo, which clients in every language
// can read.
package rpcdetail

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/callgate"
)

// Domain is the domain of every ErrorInfo.
const Domain = "leased"

// The reasons of an ErrorInfo.
const (
	ReasonStale = "STALE_FENCING_TOKEN"
	ReasonJump  = "FENCING_TOKEN_JUMP"
)

// Code returns the status code for an error of a gate.
func Code(err error) codes.Code {
	switch {
	case errors.Is(err, fencing.ErrStale), errors.Is(err, fencing.ErrJump), errors.Is(err, fencing.ErrNoToken):
		return codes.FailedPrecondition
	case errors.Is(err, fencing.ErrInvalidToken), errors.Is(err, fencing.ErrInvalidResource):
		return codes.InvalidArgument
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, callgate.ErrNotAdmitted):
		return codes.Unavailable
	case errors.Is(err, storagegate.ErrUncertain):
		return codes.Unknown
	}
	return codes.Internal
}

// Info returns the detail of a refused token, or nil if err is another error.
func Info(err error) *errdetails.ErrorInfo {
	var stale *fencing.StaleError
	var jump *fencing.JumpError
	switch {
	case errors.As(err, &stale):
		return info(ReasonStale, stale.Resource, stale.Token, stale.Mark)
	case errors.As(err, &jump):
		detail := info(ReasonJump, jump.Resource, jump.Token, jump.Mark)
		detail.Metadata["max_jump"] = jump.MaxJump.String()
		return detail
	}
	return nil
}

func info(reason string, resource fencing.Resource, token, mark fencing.Token) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: map[string]string{
		"resource": string(resource), "token": token.String(), "mark": mark.String(),
	}}
}

// Refusal is the inverse of Info: it returns the *fencing.StaleError or
// *fencing.JumpError of a detail, or nil for other details.
func Refusal(detail *errdetails.ErrorInfo) error {
	if detail.GetDomain() != Domain {
		return nil
	}
	var numbers [3]fencing.Token
	for i, key := range []string{"token", "mark", "max_jump"} {
		text, ok := detail.Metadata[key]
		if !ok && key == "max_jump" {
			continue
		}
		token, err := fencing.ParseToken(text)
		if err != nil {
			return fmt.Errorf("read the %s of a refusal: %w", key, err)
		}
		numbers[i] = token
	}
	resource := fencing.Resource(detail.Metadata["resource"])
	switch detail.Reason {
	case ReasonStale:
		return &fencing.StaleError{Resource: resource, Token: numbers[0], Mark: numbers[1]}
	case ReasonJump:
		return &fencing.JumpError{Resource: resource, Token: numbers[0], Mark: numbers[1], MaxJump: numbers[2]}
	}
	return nil
}
