package property

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Name is the name of a property.
type Name string

// The properties. docs/GUARANTEES.md says what each of them depends on.
const (
	T1         Name = "T1: no token is granted twice for a lock"
	T2         Name = "T2: a later grant has a larger token"
	T3         Name = "T3: tokens keep growing across a fault"
	G1         Name = "G1: the gate applies no write below its mark"
	G2         Name = "G2: no update is lost"
	M1         Name = "M1: one holder in log order"
	Survives   Name = "what was acknowledged survives"
	Once       Name = "a request is applied at most once"
	Chain      Name = "replicas have applied the same entries"
	Progress   Name = "after healing a free lock is granted"
	WellFormed Name = "the history is well-formed"
)

// All lists the properties that a history must exercise. WellFormed is not among
// them: it is a property of the test.
var All = []Name{T1, T2, T3, G1, G2, M1, Survives, Once, Chain, Progress}

// Violation is a violated property, with the event that violated it.
type Violation struct {
	Property Name
	Detail   string
	Event    Event
}

// Error names the property and the event.
func (v *Violation) Error() string { return fmt.Sprintf("%s: %s (%s)", v.Property, v.Detail, v.Event) }

// Report has the figures of one run, or the sums of several.
type Report struct {
	Setting    string
	Seeds      []uint64       `json:",omitempty"`
	Runs       int            // histories
	Time       time.Duration  // virtual or real time of the histories
	Operations int            // acquisition attempts, ends of leases and gate operations
	Grants     int            // received by clients
	Writes     int            // applied by the gate
	Stale      int            // writes refused by the gate
	Overlaps   int            // grants received while another client still worked under its own
	Faults     map[string]int // by kind; pauses included
	Checks     map[Name]int
	Violations []string `json:",omitempty"`
}

// Add adds the figures of another report.
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
		r.Checks = map[Name]int{}
	}
	for p, n := range other.Checks {
		r.Checks[p] += n
	}
}

// Injected returns the number of faults of all kinds.
func (r Report) Injected() int {
	n := 0
	for _, k := range r.Faults {
		n += k
	}
	return n
}

// String formats the report for people.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d runs, %s, %d operations, %d grants, %d writes, %d stale writes refused, %d overlaps of "+
		"holders\n",
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
