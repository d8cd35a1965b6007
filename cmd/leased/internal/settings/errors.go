package settings

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease/remote/secret"
)

// ErrInvalid reports that a setting breaks a rule. The error is an *Error.
var ErrInvalid = errors.New("invalid configuration")

// Error reports the rule that a setting breaks. It matches ErrInvalid.
type Error struct {
	Key, Value string
	// Source is the origin of the value, such as "--listen", "LEASED_LISTEN" or a
	// line of a file. It may be empty.
	Source string
	Rule   string
}

// Error returns the key, the value unless it is a secret, its source and the rule.
func (e *Error) Error() string {
	value := e.Value
	if e.Source != "" {
		value += ", from " + e.Source
	}
	return secret.Hide(fmt.Sprintf("%s (%s) %s", e.Key, value, e.Rule))
}

// Is makes errors.Is match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }
