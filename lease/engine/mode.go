package engine

import "fmt"

// Mode is how strong a lock is. It belongs to the lock: all who want it must
// have the same idea of it, and a Backend refuses those who have another.
type Mode uint8

const (
	// AnyMode is no expectation: whatever mode the lock has.
	AnyMode Mode = iota
	// Efficiency is Redlock over independent Redis masters: fast, and in rare
	// cases two clients hold the lock at once. Tokens are sound all the same.
	Efficiency
	// Correctness is a grant in a Raft log: one holder, by log order.
	Correctness
)

// ParseMode reads "efficiency" or "correctness".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "efficiency":
		return Efficiency, nil
	case "correctness":
		return Correctness, nil
	}
	return AnyMode, fmt.Errorf("%w: mode %q, use \"efficiency\" or \"correctness\"", ErrInvalid, s)
}

// String is the word that ParseMode reads, or "any".
func (m Mode) String() string {
	switch m {
	case AnyMode:
		return "any"
	case Efficiency:
		return "efficiency"
	case Correctness:
		return "correctness"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText writes the word. AnyMode is empty.
func (m Mode) MarshalText() ([]byte, error) {
	switch m {
	case AnyMode:
		return nil, nil
	case Efficiency, Correctness:
		return []byte(m.String()), nil
	}
	return nil, fmt.Errorf("%w: %s", ErrInvalid, m)
}

// UnmarshalText reads what MarshalText writes.
func (m *Mode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = AnyMode
		return nil
	}
	mode, err := ParseMode(string(text))
	if err != nil {
		return err
	}
	*m = mode
	return nil
}

// Kind is how a lease shares its resource with others.
type Kind uint8

const (
	// Exclusive leases share with nobody.
	Exclusive Kind = iota
	// Shared leases share with other Shared ones: readers.
	Shared
	// Permit leases share with as many others as there are slots: a semaphore.
	Permit
)

// String is the word for k.
func (k Kind) String() string {
	switch k {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Permit:
		return "permit"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}
