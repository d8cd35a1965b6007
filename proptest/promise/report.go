package promise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Promise is the name of one thing that is promised.
type Promise string

// The promises. docs/GUARANTEES.md says what each of them rests on.
const (
	T1       Promise = "T1: no token is granted twice for a lock"
	T2       Promise = "T2: a later grant has a larger token"
	T3       Promise = "T3: tokens keep growing across a fault"
	G1       Promise = "G1: the gate applies no write below its mark"
	G2       Promise = "G2: no update is lost"
	M1       Promise = "M1: one holder in log order"
	Survives Promise = "what was acknowledged survives"
	Once     Promise = "a request is applied at most once"
	Chain    Promise = "replicas have applied the same"
	Progress Promise = "after healing a free lock is granted"
	Tellable Promise = "the story makes sense"
)

// All are the promises that a Judge looks after.
var All = []Promise{T1, T2, T3, G1, G2, M1, Survives, Once, Chain, Progress}

// Violation is a broken promise, with the event that broke it.
type Violation struct {
	Promise Promise
	Detail  string
	Event   Event
}

// Error names the promise and what broke it.
func (v *Violation) Error() string { return fmt.Sprintf("%s: %s (%s)", v.Promise, v.Detail, v.Event) }

// Report is the figures of one run, or of several together.
type Report struct {
	Setting    string
	Seeds      []uint64       `json:",omitempty"`
	Runs       int            // separate histories
	Time       time.Duration  // that passed in them, virtual or real
	Operations int            // attempts, releases and gate operations that were checked
	Grants     int            // that clients were told of
	Writes     int            // that the gate applied
	Stale      int            // that the gate refused
	Overlaps   int            // grants told while the former holder still believed in its own
	Faults     map[string]int // by kind; a pause is one of them
	Checks     map[Promise]int
	Violations []string `json:",omitempty"`
}

// Add puts the figures of another report to these.
func (r *Report) Add(other Report) {
	r.Seeds = append(r.Seeds, other.Seeds...)
	r.Runs += other.Runs
	r.Time += other.Time
	r.Operations += other.Operations
	r.Grants += other.Grants
	r.Writes += other.Writes
	r.Stale += other.Stale
	r.Overlaps += other.Overlaps
	r.Violations = append(r.Violations, other.Violations...)
	if r.Faults == nil {
		r.Faults = map[string]int{}
	}
	for kind, n := range other.Faults {
		r.Faults[kind] += n
	}
	if r.Checks == nil {
		r.Checks = map[Promise]int{}
	}
	for p, n := range other.Checks {
		r.Checks[p] += n
	}
}

// Injected is how many faults there were, of all kinds.
func (r Report) Injected() int {
	n := 0
	for _, k := range r.Faults {
		n += k
	}
	return n
}

// String is the report for people.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d runs, %s, %d operations, %d grants, %d writes, %d stale writes refused, %d overlaps of holders\n",
		r.Setting, r.Runs, r.Time.Round(time.Second), r.Operations, r.Grants, r.Writes, r.Stale, r.Overlaps)
	fmt.Fprintf(&b, "  %d faults:", r.Injected())
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, " %s %d", kind, r.Faults[kind])
	}
	b.WriteString("\n")
	for _, p := range All {
		if n := r.Checks[p]; n > 0 {
			fmt.Fprintf(&b, "  %10d times checked  %s\n", n, p)
		}
	}
	fmt.Fprintf(&b, "  %d violations\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  VIOLATION %s\n", v)
	}
	return b.String()
}
