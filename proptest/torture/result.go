//go:build linux

package torture

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/proptest/property"
)

// Figures are the figures of one class of locks.
type Figures struct {
	Grants, Writes, Stale, Overlaps int
	// Unpaused is the number of overlaps whose former holder was not paused.
	Unpaused int
}

// Result is the result of a run.
type Result struct {
	property.Report
	// Scenario is the one that was run.
	Scenario Scenario
	// Modes has the figures of the locks of each mode, and of "switched" locks, which
	// are migrated.
	Modes map[string]Figures
	// Switches has the figures of the migrations.
	Switches Switches
	// Routes has the grants in efficiency mode while there was no leader, or while all
	// Redis nodes were emptied.
	Routes Routes
	// Linearizable and Undecided are numbers of histories.
	Linearizable, Undecided int
	// Acknowledged is the number of acknowledged writes of each worker.
	Acknowledged map[string]int
	// Without lists faults that could not be injected, and why.
	Without []string `json:",omitempty"`

	excerpt   []property.Event // for Picture
	violation *property.Violation
}

var classNames = map[string]string{correctness: "correctness", efficiency: "efficiency", switched: "switched",
	inPostgres: "PostgreSQL"}

// add adds the outcome of one history.
func (r *Result) add(h *history, v outcome) {
	r.Report.Add(v.report)
	f := r.Modes[classNames[h.class]]
	f.Grants += v.report.Grants
	f.Writes += v.report.Writes
	f.Stale += v.report.Stale
	f.Overlaps += v.report.Overlaps
	f.Unpaused += v.unpaused
	r.Modes[classNames[h.class]] = f
	if h.class == switched {
		for mode, n := range v.modes {
			r.Switches.Grants[mode] += n
		}
	}
	switch {
	case v.undecided:
		r.Undecided++
	case len(v.report.Violations) == 0:
		r.Linearizable++
	}
	if r.violation == nil && v.excerpt != nil {
		r.excerpt, r.violation = v.excerpt, v.violation
	}
}

// String returns the result as text.
func (r *Result) String() string {
	var b strings.Builder
	b.WriteString(r.Report.String())
	switch s := r.Switches; r.Scenario {
	case Random:
		fmt.Fprintf(&b, "  %d migrations, %d of them without waiting, median %v, slowest %v; %d aborted; grants of these "+
			"locks %v\n",
			s.Done, s.Now, s.Median.Round(time.Millisecond), s.Slowest.Round(time.Millisecond), s.Aborted, s.Grants)
	case Emptied, Leaderless:
		for i, way := range []Route{r.Routes.Direct, r.Routes.Member} {
			fmt.Fprintf(&b, "  %s %s: %d grants in efficiency mode under the fault, longest gap %v\n", r.Scenario,
				[]string{"directly", "through a member"}[i], way.Grants, way.Gap.Round(time.Millisecond))
		}
	}
	for _, mode := range slices.Sorted(maps.Keys(r.Modes)) {
		f := r.Modes[mode]
		fmt.Fprintf(&b, "  %s: %d grants, %d writes, %d stale writes refused, %d overlaps of holders, %d of them with no "+
			"pause\n", mode, f.Grants, f.Writes, f.Stale, f.Overlaps, f.Unpaused)
	}
	fmt.Fprintf(&b, "  %d histories linearizable, %d undecided\n", r.Linearizable, r.Undecided)
	for _, w := range r.Without {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	return b.String()
}

// Picture draws the first violation, or else a refused write.
func (r *Result) Picture(w io.Writer) error {
	if r.violation == nil {
		return property.Draw(w, r.excerpt)
	}
	return property.Draw(w, r.excerpt, r.violation)
}
