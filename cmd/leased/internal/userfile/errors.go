package userfile

import (
	"errors"
	"fmt"
)

// What a caller can act on. Match with errors.Is.
var (
	// ErrInvalid: the file, or a name, breaks a rule. The error is an *Error.
	ErrInvalid = errors.New("invalid users")
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
		return fmt.Sprintf("%s (%s) %s", e.Key, e.Value, e.Rule)
	}
	return fmt.Sprintf("%s (%s, from %s) %s", e.Key, e.Value, e.Source, e.Rule)
}

// Is makes errors.Is match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }
