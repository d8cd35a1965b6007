package storagegate

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
)

// Resetter is a gate whose marks an operator can lower. It reopens a resource after a
// token that the lock service never granted: with such a mark, the gate refuses every
// real token.
//
// It is the only exception to the rule that marks are never lowered, and it is
// safe only if to is the token of a grant that the service made for this resource
// after the absurd token was admitted: to is above the tokens of all earlier
// grants, so the gate still refuses all of them. The gate cannot check that.
type Resetter interface {
	// Reset lowers the mark of the resource from expected to to, in one atomic
	// step. It returns ErrMarkChanged if the mark is not expected, ErrNotLower if
	// to is not below expected, and ErrUncertain if the storage did not say whether
	// it committed.
	Reset(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error
}

// ValidateReset checks the arguments of Reset before a gate accesses its storage.
// None is not a new mark: a resource stays fenced.
func ValidateReset(resource fencing.Resource, expected, to fencing.Token) error {
	if err := Validate(resource, expected); err != nil {
		return err
	}
	if to == fencing.None || to >= expected {
		return fmt.Errorf("reset the mark of %q from %d to %d: %w; "+
			"a resource whose mark is below a fresh token is not locked out", string(resource), expected, to, ErrNotLower)
	}
	return nil
}

// CompareMark returns ErrMarkChanged if the mark that a gate has read for Reset is
// not the expected one.
func CompareMark(resource fencing.Resource, mark, expected fencing.Token) error {
	if mark == expected {
		return nil
	}
	return fmt.Errorf("reset the mark of %q: %w: it is %d, expected %d; read the mark again",
		string(resource), ErrMarkChanged, mark, expected)
}
