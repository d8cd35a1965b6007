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

	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/proptest/timeline"
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
	undecided bool           // whether it is linearizable
	unpaused  int            // overlaps without a pause
	modes     map[string]int // grants by mode
	sections  []timeline.Section
	sample    *timeline.Section // a refused write, if nothing is violated
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
		case e.Kind == property.Rejected && e.Note != noteRead:
			stale = append(stale, property.Event{At: e.At, Kind: property.Stale, Who: storageName, Resource: e.Resource, Op: e.Op, Token: e.Token})
			if e.Note == "" {
				answers = append(answers, e)
			}
		case e.Note == noteEnter || e.Note == noteRead: // for linearize
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
		var violation *property.Violation
		if errors.As(checker.Observe(e), &violation) {
			violations = append(violations, violation)
		}
	}
	v.report = checker.Report(true)
	// Each fault is in several histories; the run counts it once.
	v.report.Faults, v.report.Time, v.report.Setting = nil, 0, ""
	if more := len(v.report.Violations) - mostViolations; more > 0 {
		v.report.Violations = append(v.report.Violations[:mostViolations], fmt.Sprintf("and %d more in %s", more, h.name))
	}
	h.linearize(&v)
	all := slices.Concat(first, h.rows, stale, answers, h.found)
	byTime(all)
	v.draw(h.name, all, violations, stale)
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

// linearize checks the operations of the clients for linearizability.
func (h *history) linearize(v *outcome) {
	index := map[uint64]int{}
	var ops []linear.Op
	for _, e := range h.events {
		switch e.Kind {
		case property.Sent:
			op := linear.Op{Client: int(e.Op >> 24), Resource: e.Resource, Token: e.Token, Value: e.Version, Kind: linear.Write, Call: e.At}
			switch e.Note {
			case noteEnter:
				op.Kind = linear.Enter
			case noteRead:
				op.Kind = linear.Read
			}
			index[e.Op] = len(ops)
			ops = append(ops, op)
		case property.Acknowledged, property.Rejected:
			op := &ops[index[e.Op]]
			op.Return, op.Outcome = e.At, linear.Done
			if e.Kind == property.Rejected {
				op.Outcome = linear.Stale
			}
			if op.Kind == linear.Read {
				op.Value = e.Version
			}
		}
	}
	switch err := linear.Check(ops, linearLimit, nil); {
	case errors.Is(err, linear.ErrTimeout):
		v.undecided = true
	case err != nil:
		v.report.Violations = append(v.report.Violations, fmt.Sprintf("%s: operations on %s: %v", property.G2, h.name, err))
	}
}

// draw selects the sections of the diagram: the first violations, or else a refused write.
func (v *outcome) draw(name string, all []property.Event, violations []*property.Violation, stale []property.Event) {
	for _, b := range violations[:min(len(violations), 2)] {
		v.sections = append(v.sections, timeline.Section{Title: name, Events: timeline.Excerpt(all, b.Event, excerptEvents), Bad: []*property.Violation{b}})
	}
	if len(violations) == 0 && len(stale) > 0 {
		v.sample = &timeline.Section{Title: name, Note: "No violation. This is a late write that was refused.",
			Events: timeline.Excerpt(all, stale[0], excerptEvents)}
	}
}
