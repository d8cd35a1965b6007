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
	// Kind is exclusive, shared or one of several permits.
	Kind = engine.Kind
	// Refusal describes a write that a gate refused.
	Refusal = engine.Refusal
	// ModeError reports that a lock does not have the mode that the caller expects.
	ModeError = engine.ModeError
	// PolicyError reports two fields of a policy that contradict each other.
	PolicyError = engine.PolicyError
	// MigratingError reports that a lock is changing its mode.
	MigratingError = engine.MigratingError
)

// The modes of a lock.
const (
	AnyMode     = engine.AnyMode
	Efficiency  = engine.Efficiency
	Correctness = engine.Correctness
)

// The kinds of a lease.
const (
	Exclusive = engine.Exclusive
	Shared    = engine.Shared
	Permit    = engine.Permit
)

// The default TTL of a lock, and its limits.
const (
	DefaultTTL = engine.DefaultTTL
	MinTTL     = engine.MinTTL
	MaxTTL     = engine.MaxTTL
)

// ParseMode parses the name of a mode.
func ParseMode(s string) (Mode, error) { return engine.ParseMode(s) }
