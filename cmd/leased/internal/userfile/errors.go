package userfile

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease/remote/secret"
)

// What a caller can act on. Match with errors.Is.
var (
	// ErrInvalid: the file, or a name, breaks a rule. The error is an *Error.
	ErrInvalid = errors.New("invalid users")
	// ErrEmpty: the file has nothing in it. It matches ErrInvalid.
	ErrEmpty = fmt.Errorf("%w: the file is empty; add a user with `leased user add`, or write [] to let in nobody", ErrInvalid)
	// ErrBusy: another process is changing the file.
	ErrBusy = errors.New("users are being changed")
)

// Error says which rule an entry breaks. It matches ErrInvalid.
type Error struct {
	Key, Value string
	// Source is the file and the line.
	Source string
	Rule   string
}

// Error names the key, the value, where it is, and the rule.
func (e *Error) Error() string {
	if e.Source == "" {
		return secret.Hide(fmt.Sprintf("%s (%s) %s", e.Key, e.Value, e.Rule))
	}
	return secret.Hide(fmt.Sprintf("%s (%s, from %s) %s", e.Key, e.Value, e.Source, e.Rule))
}

// Is makes errors.Is match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }
