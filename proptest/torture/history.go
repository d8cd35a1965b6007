//go:build linux

package torture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/proptest/property"
)

const (
	linearLimit = 30 * time.Second
	// mostViolations is the number of reported violations of one history.
	mostViolations = 10
	excerptEvents  = 30
)

// history is the history of the locks of one class in one generation.
type history struct {
	name       string // as "c/17"
	class      string
	generation int // -1: always
	events     []property.Event
	rows       []property.Event // the log of the storage, in its order
	found      []property.Event
	faults     []property.Event
}

func newHistory(name string) *history {
	h := &history{name: name, generation: -1}
	class, generation, _ := strings.Cut(name, "/")
	h.class = class
	if n, err := strconv.Atoi(generation); err == nil {
		h.generation = n
	}
	return h
}

// during returns the faults that happened in the time of the history.
func (h *history) during(faults []property.Event) []property.Event {
	if len(h.events) == 0 {
		return nil
	}
	first, last := h.events[0].At, h.events[0].At
	for _, e := range h.events {
		first, last = min(first, e.At), max(last, e.At)
	}
	var part []property.Event
	for _, e := range faults {
		if e.At >= first-10*time.Second && e.At <= last {
			part = append(part, e)
		}
	}
	return part
}

// outcome is the result of checking one history.
type outcome struct {
	report    property.Report
	undecided bool                // whether it is linearizable
	unpaused  int                 // overlaps without a pause
	modes     map[string]int      // grants by mode
	excerpt   []property.Event    // of the first violation, or else of a refused write
	violation *property.Violation // the first
}

// check checks the history. The property checker gets the events in one possible order:
// clients and faults by time; then the log of the storage, in its own order; then the
// answers of the storage. No property of the gate depends on time, and no property of
// tokens on the storage.
func (h *history) check() outcome {
	h.date()
	var first, answers, stale []property.Event
	for _, e := range h.events {
		switch {
		case e.Kind == property.Rejected:
			if e.Access != property.Read {
				stale = append(stale, property.Event{At: e.At, Kind: property.Stale, Who: storageName, Resource: e.Resource,
					Op:    e.Op,
					Token: e.Token})
			}
			answers = append(answers, e)
		case e.Kind == property.Acknowledged:
			answers = append(answers, e)
		default:
			first = append(first, e)
		}
	}
	first = append(first, h.faults...)
	byTime(first)
	checker := property.NewChecker("torture")
	v := outcome{unpaused: unpaused(first), modes: map[string]int{}}
	for _, e := range first {
		if e.Kind == property.Acquired {
			v.modes[e.Note]++
		}
	}
	var violations []*property.Violation
	for _, e := range slices.Concat(first, h.rows, stale, answers, h.found) {
		if violation, ok := errors.AsType[*property.Violation](checker.Observe(e)); ok {
			violations = append(violations, violation)
		}
	}
	v.report = checker.Report(true)
	// Each fault is in several histories; the run counts it once.
	v.report.Faults, v.report.Time, v.report.Setting = nil, 0, ""
	if more := len(v.report.Violations) - mostViolations; more > 0 {
		v.report.Violations = append(v.report.Violations[:mostViolations], fmt.Sprintf("and %d more in %s", more, h.name))
	}
	switch err := property.CheckLinearizable(property.Operations(h.events), linearLimit, nil); {
	case errors.Is(err, property.ErrTimeout):
		v.undecided = true
	case err != nil:
		v.report.Violations = append(v.report.Violations, fmt.Sprintf("%s: operations on %s: %v", property.G2, h.name, err))
	}
	all := slices.Concat(first, h.rows, stale, answers, h.found)
	byTime(all)
	switch {
	case len(violations) > 0:
		v.violation, v.excerpt = violations[0], property.Excerpt(all, violations[0].Event, excerptEvents)
	case len(stale) > 0:
		v.excerpt = property.Excerpt(all, stale[0], excerptEvents)
	}
	return v
}

// date sets the times of the storage's rows on the clock of the clients: after the
// operation was sent and before it was answered. The rows keep their order.
func (h *history) date() {
	sent, answered := map[uint64]time.Duration{}, map[uint64]time.Duration{}
	for _, e := range h.events {
		switch e.Kind {
		case property.Sent:
			sent[e.Op] = e.At
		case property.Acknowledged:
			answered[e.Op] = e.At
		}
	}
	var last time.Duration
	for i := range h.rows {
		e := &h.rows[i]
		if t, ok := answered[e.Op]; ok {
			e.At = min(e.At, t)
		}
		e.At = max(e.At, sent[e.Op], last)
		last = e.At
	}
}

// byTime sorts events by time. The sort is stable.
func byTime(events []property.Event) {
	slices.SortStableFunc(events, func(a, b property.Event) int { return cmp.Compare(a.At, b.At) })
}
