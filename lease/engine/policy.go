package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Default and limits of the TTL of a lock.
const (
	DefaultTTL = 10 * time.Second
	MinTTL     = 10 * time.Millisecond
	MaxTTL     = 24 * time.Hour
)

// Policy sets the mode and the timings of all locks whose names begin with Prefix.
// The policy with the longest matching Prefix applies. A zero field has its default.
type Policy struct {
	// Prefix selects the locks. The empty prefix selects all.
	Prefix string
	// Mode is the mode of these locks; AnyMode leaves it to the service.
	Mode Mode
	// Next is the mode that these locks are migrating to, or AnyMode. A lock in a
	// migration is not granted. Only the service sets it.
	Next Mode
	// TTL is the time that a lease lasts without a renewal. Default: DefaultTTL.
	TTL time.Duration
	// Renew is the time between two renewals. Default: a third of TTL, so that
	// two attempts may fail.
	Renew time.Duration
	// Drift is the time by which the holder gives up early, because its clock and
	// the service's may run at different rates. Default: TTL/100 + 2ms.
	Drift time.Duration
	// LockDelay is the time for which a lock is not granted after its holder was
	// lost. It does not apply after a release. It gives a paused holder's last writes
	// time to arrive where there is no gate. The service enforces it. Default: none.
	LockDelay time.Duration
}

// Filled returns p with defaults for all timings that are zero.
func (p Policy) Filled() Policy {
	p.TTL = cmp.Or(p.TTL, DefaultTTL)
	p.Renew = cmp.Or(p.Renew, p.TTL/3)
	p.Drift = cmp.Or(p.Drift, p.TTL/100+2*time.Millisecond)
	return p
}

// Validate returns the first rule that p, with its defaults, breaks. If a relation is broken,
// the error names both fields.
func (p Policy) Validate() error {
	f := p.Filled()
	broken := func(field string, value any, rule string, args ...any) error {
		return Special(fmt.Sprintf("policy for %q: %s (%v) %s", p.Prefix, field, value, fmt.Sprintf(rule, args...)),
			ErrInvalid)
	}
	switch {
	case p.Prefix != "" && fencing.Resource(p.Prefix).Validate() != nil:
		return broken("prefix", fmt.Sprintf("%q", p.Prefix), "must be the beginning of a resource name")
	case p.Mode > Correctness || p.Next > Correctness:
		return broken("mode", p.Mode, "must be efficiency or correctness")
	case p.LockDelay != 0 && (p.Mode == Efficiency || p.Next == Efficiency):
		return broken("lock-delay", f.LockDelay, "is for correctness mode; remove it, or change mode (%v)", Efficiency)
	case f.TTL < MinTTL || f.TTL > MaxTTL:
		return broken("ttl", f.TTL, "must be from %v to %v", MinTTL, MaxTTL)
	case f.Drift < 0 || f.Drift >= f.TTL:
		return broken("drift", f.Drift, "must be at least 0 and less than ttl (%v)", f.TTL)
	case f.Renew <= 0 || f.Renew >= f.TTL-f.Drift:
		return broken("renew", f.Renew, "must be above 0 and, with drift (%v) added, less than ttl (%v)", f.Drift, f.TTL)
	case f.LockDelay < 0 || f.LockDelay > MaxTTL:
		return broken("lock-delay", f.LockDelay, "must be from 0 to %v", MaxTTL)
	}
	return nil
}

// ValidateTTL validates the TTL of a session or lease.
func ValidateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w: ttl (%v) must be from %v to %v", ErrInvalid, ttl, MinTTL, MaxTTL)
	}
	return nil
}

// Policies is a set of policies with different prefixes. The zero value is
// empty: every lock has the defaults.
type Policies struct {
	byPrefix []Policy // the longest prefix first, then by name
}

// NewPolicies validates policies and returns them as a set. It refuses two policies
// with the same prefix.
func NewPolicies(policies ...Policy) (Policies, error) {
	var set Policies
	for _, p := range policies {
		if err := p.Validate(); err != nil {
			return Policies{}, err
		}
		if _, found := set.search(p.Prefix); found {
			return Policies{}, fmt.Errorf("%w: two policies for the prefix %q", ErrInvalid, p.Prefix)
		}
		set = set.With(p)
	}
	return set, nil
}

// For returns the policy of a resource, with its defaults.
func (s Policies) For(resource fencing.Resource) Policy { return s.Match(resource).Filled() }

// Match returns the policy with the longest matching prefix, without defaults, or the
// zero Policy if there is none.
func (s Policies) Match(resource fencing.Resource) Policy {
	for i := range s.byPrefix {
		if p := &s.byPrefix[i]; strings.HasPrefix(string(resource), p.Prefix) {
			return *p
		}
	}
	return Policy{}
}

// All returns the policies, the longest prefix first.
func (s Policies) All() []Policy { return slices.Clone(s.byPrefix) }

// With returns s with p added. A policy with the same prefix is replaced. The caller
// has validated p.
func (s Policies) With(p Policy) Policies {
	i, found := s.search(p.Prefix)
	next := slices.Clone(s.byPrefix)
	if found {
		next[i] = p
	} else {
		next = slices.Insert(next, i, p)
	}
	return Policies{byPrefix: next}
}

// Without returns s without the policy for prefix, and whether there was one.
func (s Policies) Without(prefix string) (Policies, bool) {
	i, found := s.search(prefix)
	if !found {
		return s, false
	}
	return Policies{byPrefix: slices.Delete(slices.Clone(s.byPrefix), i, i+1)}, true
}

func (s Policies) search(prefix string) (int, bool) {
	return slices.BinarySearchFunc(s.byPrefix, prefix, func(p Policy, prefix string) int {
		if len(p.Prefix) != len(prefix) {
			return len(prefix) - len(p.Prefix)
		}
		return strings.Compare(p.Prefix, prefix)
	})
}
