package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leased-project/leased/bench/results"
)

// summary has the measurements of all runs.
type summary struct {
	runs    []results.Run
	samples []sample
}

// sample is a measurement with the number of its run, since rounds of different runs do not belong together.
type sample struct {
	results.Sample
	run int
}

// params are values of parameters, such as 256 workers.
type params map[string]int

// series are the values of one figure of one target by their round.
type series map[round]float64

// round is a round of a run.
type round struct{ run, number int }

func newSummary(runs []results.Run) *summary {
	s := &summary{runs: runs}
	for i, run := range runs {
		for _, m := range run.Samples {
			s.samples = append(s.samples, sample{m, i})
		}
	}
	return s
}

// matches says whether the sample has all these values.
func (m sample) matches(p params) bool {
	for name, value := range p {
		if v, ok := m.Params[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// values returns the values of a figure. If a round has several, the last counts.
func (s *summary) values(work, target, figure string, p params) series {
	values := series{}
	for _, m := range s.samples {
		if v, ok := m.Figures[figure]; ok && m.Work == work && m.Target == target && m.matches(p) {
			values[round{m.run, m.Round}] = v
		}
	}
	return values
}

// targets returns the names of the targets of a workload, in the order of their look.
func (s *summary) targets(work string) []string {
	names := map[string]bool{}
	for _, m := range s.samples {
		if m.Work == work {
			names[m.Target] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
}

// cases returns the combinations of values that the parameters have in a workload, in ascending order.
func (s *summary) cases(work string, by []string) (cases []params) {
	seen := map[string]bool{}
	for _, m := range s.samples {
		if m.Work != work {
			continue
		}
		p := params{}
		for _, name := range by {
			if v, ok := m.Params[name]; ok {
				p[name] = v
			}
		}
		if key := fmt.Sprint(p); !seen[key] {
			seen[key] = true
			cases = append(cases, p)
		}
	}
	slices.SortFunc(cases, func(a, b params) int {
		for _, name := range by {
			if d := a[name] - b[name]; d != 0 {
				return d
			}
		}
		return 0
	})
	return cases
}

// steal returns the spread of the stolen time of a workload, in percent.
func (s *summary) steal(work string) results.Spread {
	var values []float64
	for _, m := range s.samples {
		if m.Work == work {
			values = append(values, 100*m.Steal)
		}
	}
	return results.NewSpread(values)
}

// notes returns the remarks of the samples of a workload, each once.
func (s *summary) notes(work string) (notes []string) {
	for _, m := range s.samples {
		note := label(m.Target) + ": " + m.Note
		if m.Work == work && m.Note != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// ratio divides the values of the rounds that both have.
func ratio(ours, theirs series) results.Spread {
	var values []float64
	for r, v := range ours {
		if w, ok := theirs[r]; ok && w > 0 {
			values = append(values, v/w)
		}
	}
	return results.NewSpread(values)
}

// all returns the spread of the values.
func (v series) all() results.Spread { return results.NewSpread(slices.Collect(maps.Values(v))) }
