//go:build linux

package torture

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/leased-project/leased/proptest/promise"
	"github.com/leased-project/leased/proptest/spacetime"
)

// Figures are those of one mode.
type Figures struct {
	Grants, Writes, Stale, Overlaps int
	// Unpaused are the overlaps whose former holder was not paused.
	Unpaused int
}

// Result is what came out of a run.
type Result struct {
	promise.Report
	// Modes are the figures of each mode, by its name.
	Modes map[string]Figures
	// Linearizable histories, and those of which it was not found out in time.
	Linearizable, Undecided int
	// Without are faults that could not be made here, and why.
	Without []string `json:",omitempty"`

	sections []spacetime.Section
	sample   *spacetime.Section
}

var modeNames = map[string]string{correctness: "correctness", efficiency: "efficiency"}

// add takes the verdict on one history.
func (r *Result) add(h *history, v verdict) {
	r.Report.Add(v.report)
	f := r.Modes[modeNames[h.mode]]
	f.Grants += v.report.Grants
	f.Writes += v.report.Writes
	f.Stale += v.report.Stale
	f.Overlaps += v.report.Overlaps
	f.Unpaused += v.unpaused
	r.Modes[modeNames[h.mode]] = f
	switch {
	case v.undecided:
		r.Undecided++
	case len(v.report.Violations) == 0:
		r.Linearizable++
	}
	if len(r.sections) < 4 {
		r.sections = append(r.sections, v.sections...)
	}
	if v.sample != nil {
		r.sample = v.sample
	}
}

// String is the result for people.
func (r *Result) String() string {
	var b strings.Builder
	b.WriteString(r.Report.String())
	for _, mode := range slices.Sorted(maps.Keys(r.Modes)) {
		f := r.Modes[mode]
		fmt.Fprintf(&b, "  %s: %d grants, %d writes, %d stale writes refused, %d overlaps of holders, %d of them with no pause\n", mode, f.Grants, f.Writes, f.Stale, f.Overlaps, f.Unpaused)
	}
	fmt.Fprintf(&b, "  %d histories linearizable by a second opinion, %d undecided\n", r.Linearizable, r.Undecided)
	for _, w := range r.Without {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	return b.String()
}

// Picture draws the first violations, or else how a write was refused.
func (r *Result) Picture(w io.Writer) error {
	sections := r.sections
	if len(sections) == 0 && r.sample != nil {
		sections = []spacetime.Section{*r.sample}
	}
	return spacetime.WritePage(w, "leased torture, seed "+strings.Trim(fmt.Sprint(r.Seeds), "[]"), sections...)
}
