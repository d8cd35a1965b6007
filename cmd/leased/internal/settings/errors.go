package settings

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease/remote/secret"
)

// ErrInvalid: a setting breaks a rule. The error is an *Error.
var ErrInvalid = errors.New("invalid configuration")

// Error says which rule a setting breaks. It matches ErrInvalid.
type Error struct {
	Key, Value string
	// Source is where the value was given, as "--listen" or "LEASED_LISTEN".
	Source string
	Rule   string
}

// Error names the key, the value if it is no secret, where it was given, and the
// rule.
func (e *Error) Error() string {
	return secret.Hide(fmt.Sprintf("%s (%s, from %s) %s", e.Key, e.Value, e.Source, e.Rule))
}

// Is makes errors.Is match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }
