package callgate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
)

// ErrUngated is returned by a function that names the resource of a call, to let
// that call pass without a check. It is for calls that only read.
var ErrUngated = errors.New("the call is not gated")

// ErrNotAdmitted means that a call did not run, because it waited too long for
// its resource or its token could not be checked. It is not a refusal: the same
// call can be tried again.
var ErrNotAdmitted = errors.New("the call was not admitted, nothing was written")

// Refusal reports whether err means that the call must not be retried as it is:
// its token was refused, or its token or resource is invalid.
func Refusal(err error) bool {
	refusals := []error{
		fencing.ErrStale, fencing.ErrJump, fencing.ErrNoToken, fencing.ErrInvalidToken, fencing.ErrInvalidResource,
	}
	return slices.ContainsFunc(refusals, func(target error) bool { return errors.Is(err, target) })
}

// Named checks what a function that names the resource of a call has returned.
// It returns ErrUngated unchanged, and any other error as one that matches
// fencing.ErrInvalidResource.
func Named(resource fencing.Resource, err error) (fencing.Resource, error) {
	switch {
	case err == nil:
		return resource, resource.Validate()
	case errors.Is(err, ErrUngated), errors.Is(err, fencing.ErrInvalidResource):
		return "", err
	}
	return "", fmt.Errorf("name the resource: %w: %w", fencing.ErrInvalidResource, err)
}
