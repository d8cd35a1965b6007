package userfile

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease/remote/secret"
)

// Errors that a caller can act on. Match them with errors.Is.
var (
	// ErrInvalid reports that the file or a name breaks a rule. The error is an *Error.
	ErrInvalid = errors.New("invalid users")
	// ErrEmpty reports that the file is empty. It matches ErrInvalid.
	ErrEmpty = fmt.Errorf("%w: the file is empty; add a user with `leased user add`, or write [] to reject all callers", ErrInvalid)
	// ErrBusy reports that another process is changing the file.
	ErrBusy = errors.New("users file is being changed")
)

// Error reports the rule that a value breaks. It matches ErrInvalid.
type Error struct {
	Key, Value string
	// Source is the file and the line.
	Source string
	Rule   string
}

// Error returns the key, the value, its source and the rule.
func (e *Error) Error() string {
	if e.Source == "" {
		return secret.Hide(fmt.Sprintf("%s (%s) %s", e.Key, e.Value, e.Rule))
	}
	return secret.Hide(fmt.Sprintf("%s (%s, from %s) %s", e.Key, e.Value, e.Source, e.Rule))
}

// Is makes errors.Is match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }
