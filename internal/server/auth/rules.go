package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Right is what a user may do. All rights but Cluster and Metrics are granted for locks.
type Right string

// The rights.
const (
	Acquire Right = "acquire" // acquire locks
	Read    Right = "read"    // inspect, list and watch locks
	Break   Right = "break"   // take leases away, and see their tokens
	Policy  Right = "policy"  // change the policies of a prefix
	Cluster Right = "cluster" // manage members, the Redis fleet and snapshots
	Metrics Right = "metrics" // read the metrics of a member
)

var lockRights = []Right{Acquire, Read, Break, Policy}

// hasPattern reports whether a right is granted for locks.
func (r Right) hasPattern() bool { return r != Cluster && r != Metrics }

// Rule grants a right on a lock, or on all locks whose names start with a prefix.
//
// Invariants, checked by ParseRule:
//  1. Pattern is empty exactly if Right is Cluster or Metrics;
//  2. otherwise it is a lock name without *, or such a name or nothing, followed by *;
//  3. if Right is Policy, it ends with *.
type Rule struct {
	Right   Right
	Pattern string
}

// ParseRule parses RIGHT:PATTERN, such as "acquire:jobs/*", or "cluster" or "metrics".
func ParseRule(text string) (Rule, error) {
	right, pattern, hasPattern := strings.Cut(text, ":")
	r := Rule{Right: Right(right), Pattern: pattern}
	prefix := strings.TrimSuffix(pattern, "*")
	switch {
	case !r.Right.hasPattern() && hasPattern:
		return Rule{}, fmt.Errorf("%w: rule %q: the right %s has no pattern; write %[3]s alone", engine.ErrInvalid, text,
			right)
	case !r.Right.hasPattern():
		return r, nil
	case !slices.Contains(lockRights, r.Right):
		return Rule{}, fmt.Errorf("%w: rule %q: there is no right %q; a rule is acquire, read, break or policy with a "+
			"pattern, such as acquire:jobs/*, or cluster or metrics",
			engine.ErrInvalid, text, right)
	case pattern == "":
		return Rule{}, fmt.Errorf("%w: rule %q: the right %s needs a pattern: a lock name, or a prefix followed by *, "+
			"such as %[3]s:jobs/*", engine.ErrInvalid, text, right)
	case strings.Contains(prefix, "*"):
		return Rule{}, fmt.Errorf("%w: rule %q: * stands for the rest of a name, and must be the last character",
			engine.ErrInvalid, text)
	case r.Right == Policy && prefix == pattern:
		return Rule{}, fmt.Errorf("%w: rule %q: a policy belongs to all locks with a prefix; end the pattern with *, "+
			"such as policy:jobs/*", engine.ErrInvalid, text)
	case prefix != "":
		if err := fencing.Resource(prefix).Validate(); err != nil {
			return Rule{}, fmt.Errorf("%w: rule %q: %w", engine.ErrInvalid, text, err)
		}
	}
	return r, nil
}

// AdminRules returns the rules of an administrator: all rights on everything.
func AdminRules() Rules {
	rules := Rules{{Right: Cluster}, {Right: Metrics}}
	for _, right := range lockRights {
		rules = append(rules, Rule{right, "*"})
	}
	return rules
}

// String returns the text that ParseRule parses.
func (r Rule) String() string {
	if !r.Right.hasPattern() {
		return string(r.Right)
	}
	return string(r.Right) + ":" + r.Pattern
}

// prefix returns the prefix of the pattern; ok is false if the pattern is the name of
// one lock.
func (r Rule) prefix() (prefix string, ok bool) { return strings.CutSuffix(r.Pattern, "*") }

// matches reports whether the pattern contains a lock.
func (r Rule) matches(name string) bool {
	prefix, ok := r.prefix()
	return ok && strings.HasPrefix(name, prefix) || !ok && name == prefix
}

// covers reports whether the pattern contains all locks with a prefix.
func (r Rule) covers(prefix string) bool {
	own, ok := r.prefix()
	return ok && strings.HasPrefix(prefix, own)
}

// overlaps reports whether the pattern contains some of the locks with a prefix.
func (r Rule) overlaps(prefix string) bool {
	own, _ := r.prefix()
	return r.covers(prefix) || strings.HasPrefix(own, prefix)
}

// Rules are the rules of a user. What no rule grants is denied.
type Rules []Rule

// Find returns the rule that grants a right on a lock. The rights Cluster and Metrics
// ignore the lock.
func (rs Rules) Find(right Right, name string) (Rule, bool) {
	return rs.find(right, func(r Rule) bool { return r.matches(name) })
}

// FindPrefix returns the rule that grants a right on all locks with a prefix.
func (rs Rules) FindPrefix(right Right, prefix string) (Rule, bool) {
	return rs.find(right, func(r Rule) bool { return r.covers(prefix) })
}

// findOverlap returns a rule that grants a right on some of the locks with a prefix.
func (rs Rules) findOverlap(right Right, prefix string) (Rule, bool) {
	return rs.find(right, func(r Rule) bool { return r.overlaps(prefix) })
}

func (rs Rules) find(right Right, match func(Rule) bool) (Rule, bool) {
	i := slices.IndexFunc(rs, func(r Rule) bool { return r.Right == right && (!right.hasPattern() || match(r)) })
	if i < 0 {
		return Rule{}, false
	}
	return rs[i], true
}
