package lease

import "github.com/leased-project/leased/lease/engine"

// The names that callers share with engines. Package engine documents them.
type (
	// Mode is the strength of a lock.
	Mode = engine.Mode
	// Policy gives the locks whose names begin with a prefix their mode and timings.
	Policy = engine.Policy
	// Status describes the holders and waiters of a lock.
	Status = engine.Status
	// Party is one holder or waiter of a lock.
	Party = engine.Party
	// HeldError says who holds a lock; errors.As finds it in an ErrHeld of a service.
	HeldError = engine.HeldError
	// Refusal describes a write that a gate refused.
	Refusal = engine.Refusal
)

// The modes of a lock.
const (
	AnyMode     = engine.AnyMode
	Efficiency  = engine.Efficiency
	Correctness = engine.Correctness
)

// The default TTL of a lock, and its limits.
const (
	DefaultTTL = engine.DefaultTTL
	MinTTL     = engine.MinTTL
	MaxTTL     = engine.MaxTTL
)

// ParseMode parses the name of a mode.
func ParseMode(s string) (Mode, error) { return engine.ParseMode(s) }
