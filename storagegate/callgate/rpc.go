package callgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Domain is the domain of the google.rpc.ErrorInfo of a refused call.
const Domain = "leased"

// The reasons of an ErrorInfo.
const (
	ReasonStale = "STALE_FENCING_TOKEN"
	ReasonJump  = "FENCING_TOKEN_JUMP"
)

// The status codes that gRPC and Connect share. They are numbers here, so that this package
// imports neither of them.
const (
	canceled           = 1
	unknown            = 2
	invalidArgument    = 3
	deadlineExceeded   = 4
	failedPrecondition = 9
	internal           = 13
	unavailable        = 14
)

// RPCCode returns the status code of gRPC and Connect for an error of a gate.
func RPCCode(err error) uint32 {
	switch {
	case errors.Is(err, fencing.ErrStale), errors.Is(err, fencing.ErrJump), errors.Is(err, fencing.ErrNoToken):
		return failedPrecondition
	case errors.Is(err, fencing.ErrInvalidToken), errors.Is(err, fencing.ErrInvalidResource):
		return invalidArgument
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.Is(err, context.DeadlineExceeded):
		return deadlineExceeded
	case errors.Is(err, ErrNotAdmitted):
		return unavailable
	case errors.Is(err, storagegate.ErrUncertain):
		return unknown
	}
	return internal
}

// RPCDetail returns the reason and the metadata of the ErrorInfo of a refused token, which
// clients in every language can read. The reason is empty if err is another error.
func RPCDetail(err error) (reason string, metadata map[string]string) {
	var stale *fencing.StaleError
	var jump *fencing.JumpError
	switch {
	case errors.As(err, &stale):
		return ReasonStale, refused(stale.Resource, stale.Token, stale.Mark)
	case errors.As(err, &jump):
		metadata = refused(jump.Resource, jump.Token, jump.Mark)
		metadata["max_jump"] = jump.MaxJump.String()
		return ReasonJump, metadata
	}
	return "", nil
}

func refused(resource fencing.Resource, token, mark fencing.Token) map[string]string {
	return map[string]string{"resource": string(resource), "token": token.String(), "mark": mark.String()}
}

// RPCRefusal is the inverse of RPCDetail: it returns the *fencing.StaleError or
// *fencing.JumpError that an ErrorInfo describes, or nil if it describes neither.
func RPCRefusal(domain, reason string, metadata map[string]string) error {
	if domain != Domain {
		return nil
	}
	var numbers [3]fencing.Token
	for i, key := range []string{"token", "mark", "max_jump"} {
		text, ok := metadata[key]
		if !ok && key == "max_jump" {
			continue
		}
		token, err := fencing.ParseToken(text)
		if err != nil {
			return fmt.Errorf("read the %s of a refusal: %w", key, err)
		}
		numbers[i] = token
	}
	resource := fencing.Resource(metadata["resource"])
	switch reason {
	case ReasonStale:
		return &fencing.StaleError{Resource: resource, Token: numbers[0], Mark: numbers[1]}
	case ReasonJump:
		return &fencing.JumpError{Resource: resource, Token: numbers[0], Mark: numbers[1], MaxJump: numbers[2]}
	}
	return nil
}
