package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leased-project/leased/internal/secret"
)

// ErrInvalid reports that a setting breaks a rule. The error is an *Error.
var ErrInvalid = errors.New("invalid configuration")

var (
	// ErrNoUsers reports that the users file is empty. It matches ErrInvalid, like
	// all errors about the content of the file.
	ErrNoUsers = fmt.Errorf("%w: the file is empty; add a user with `leased user add`, or write [] to reject all callers",
		ErrInvalid)
	// ErrUsersBusy reports that another process is changing the users file.
	ErrUsersBusy = errors.New("users file is being changed")
)

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

// Invalid returns an error about a value that was found to be wrong after Load, such as
// the name of a missing file. It adds where the values of the keys come from that the
// error names, and matches ErrInvalid. It returns nil if err is nil.
func (s *Settings) Invalid(err error, keys ...string) error {
	if err == nil {
		return nil
	}
	var from []string
	for _, key := range keys {
		if source := s.sources[key]; source != defaultSource && source != "" && strings.Contains(err.Error(), key) {
			from = append(from, key+" is from "+source)
		}
	}
	if len(from) > 0 {
		err = fmt.Errorf("%w (%s)", err, strings.Join(from, ", "))
	}
	if errors.Is(err, ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}
