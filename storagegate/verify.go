package storagegate

import (
	"fmt"
	"strings"
)

// Weakness is a setting of a server with which marks can be lost. A stale write may
// then be admitted.
type Weakness struct {
	// Server is the address of the server, or the kind of database.
	Server string
	// Setting is the name of the setting.
	Setting string
	// Value is the value of the setting.
	Value string
	// Advice says what to set, and why.
	Advice string
}

// VerifyError lists the weaknesses that the Verify of a gate has found. It matches
// ErrNotDurable.
type VerifyError struct {
	Weaknesses []Weakness
}

// Error lists what to set on which server.
func (e *VerifyError) Error() string {
	texts := make([]string, len(e.Weaknesses))
	for i, w := range e.Weaknesses {
		texts[i] = fmt.Sprintf("%s: %s is %s: %s", w.Server, w.Setting, w.Value, w.Advice)
	}
	return ErrNotDurable.Error() + ": " + strings.Join(texts, "; ")
}

// Is makes errors.Is match ErrNotDurable.
func (e *VerifyError) Is(target error) bool { return target == ErrNotDurable }

// Verified returns nil, or a *VerifyError if there are weaknesses.
func Verified(weaknesses []Weakness) error {
	if len(weaknesses) == 0 {
		return nil
	}
	return &VerifyError{Weaknesses: weaknesses}
}
