package engine

import "fmt"

// Mode is the strength of a lock. It belongs to the lock: a Backend refuses a caller
// that expects another mode.
type Mode uint8

const (
	// AnyMode means that the caller accepts either mode.
	AnyMode Mode = iota
	// Efficiency is Redlock over independent Redis masters. It is fast, but in rare
	// cases two clients hold the lock at the same time. Tokens are still unique and
	// increasing.
	Efficiency
	// Correctness grants by entries in a Raft log: one holder, by log order.
	Correctness
)

// ParseMode parses "efficiency" or "correctness".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "efficiency":
		return Efficiency, nil
	case "correctness":
		return Correctness, nil
	}
	return AnyMode, fmt.Errorf("%w: mode %q, use \"efficiency\" or \"correctness\"", ErrInvalid, s)
}

// String returns the text that ParseMode parses, or "any".
func (m Mode) String() string {
	if names := []string{"any", "efficiency", "correctness"}; int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText returns the text of m. AnyMode is empty.
func (m Mode) MarshalText() ([]byte, error) {
	switch m {
	case AnyMode:
		return nil, nil
	case Efficiency, Correctness:
		return []byte(m.String()), nil
	}
	return nil, fmt.Errorf("%w: %s", ErrInvalid, m)
}

// UnmarshalText parses the text of MarshalText.
func (m *Mode) UnmarshalText(text []byte) error {
	switch string(text) { // the compiler does not copy the text
	case "":
		*m = AnyMode
		return nil
	case "efficiency":
		*m = Efficiency
		return nil
	case "correctness":
		*m = Correctness
		return nil
	}
	_, err := ParseMode(string(text))
	return err
}

// Kind says whether a lease shares its resource with others.
type Kind uint8

const (
	// Exclusive leases do not share.
	Exclusive Kind = iota
	// Shared leases share with other Shared leases, for readers.
	Shared
	// Permit leases share a number of slots, as a semaphore.
	Permit
)

// String returns the name of k.
func (k Kind) String() string {
	if names := []string{"exclusive", "shared", "permit"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}
