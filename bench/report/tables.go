package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/leased-project/leased/bench/results"
)

// workNames returns the names of all workloads in their order.
func workNames() []string { return slices.Sorted(maps.Keys(workloads)) }

// text lists the values in the order of the names: "256 workers, 8 processes".
func (p params) text(names []string) string {
	var parts []string
	for _, name := range names {
		value, ok := p[name]
		if !ok {
			continue
		}
		noun := name
		if value == 1 {
			noun = singular(name)
		}
		parts = append(parts, humanize.Comma(int64(value))+" "+noun)
	}
	return strings.Join(parts, ", ")
}

// singular returns the name of a parameter whose value is 1.
func singular(name string) string {
	if name == "processes" {
		return "process"
	}
	return strings.TrimSuffix(name, "s")
}

// markdown returns a table, or a remark if it has no rows.
func markdown(head string, rows [][]string) string {
	if len(rows) == 0 {
		return "Not measured in these results.\n"
	}
	text := "| " + head + " |\n|" + strings.Repeat("---|", strings.Count(head, " | ")+1) + "\n"
	for _, cells := range rows {
		text += "| " + strings.Join(cells, " | ") + " |\n"
	}
	return text
}

// table returns the table of a workload: a row for each case and target.
func (s *summary) table(work string) string {
	w := workloads[work]
	columns := s.measured(work, w.figures)
	head := []string{strings.Join(w.by, ", ")}
	if !w.single {
		head = append(head, "service")
	}
	for _, name := range columns {
		head = append(head, w.label(name))
	}
	compared := s.measured(work, w.compared)
	if len(s.targets(work)) < 2 {
		compared = nil
	}
	for _, name := range compared {
		head = append(head, w.ours()+" to it: "+w.label(name))
	}
	var rows [][]string
	for _, at := range s.cases(work, w.by) {
		for _, target := range s.targets(work) {
			if cells := s.row(work, target, at, columns, compared); cells != nil {
				rows = append(rows, cells)
			}
		}
	}
	return markdown(strings.Join(head, " | "), rows)
}

// row returns the cells of a case of a target, or nil if there was no attempt to measure it. If every attempt
// failed, the row says so.
func (s *summary) row(work, target string, at params, columns, compared []string) []string {
	w := workloads[work]
	if !slices.ContainsFunc(s.samples, func(m sample) bool {
		return m.Work == work && m.Target == target && m.matches(at)
	}) {
		return nil
	}
	cells := []string{at.text(w.by)}
	if !w.single {
		cells = append(cells, label(target))
	}
	first, found := len(cells), false
	for _, name := range columns {
		got := s.values(work, target, name, at).all()
		found = found || got.Count > 0 && name != results.Errors
		cells = append(cells, cell(got, figures[name].format))
	}
	for _, name := range compared {
		cells = append(cells, s.comparison(work, target, name, at))
	}
	if !found && first < len(cells) {
		cells[first] = "no operation completed"
	}
	return cells
}

// comparison returns the ratio of leased to a peer as a cell.
func (s *summary) comparison(work, peer, name string, at params) string {
	if isOurs(peer) {
		return ""
	}
	return cell(ratio(s.values(work, lookOf(peer).against, name, at), s.values(work, peer, name, at)), times)
}

// cell returns a spread, or nothing if there are no values.
func cell(s results.Spread, format func(float64) string) string {
	if s.Count == 0 {
		return ""
	}
	return s.Format(format)
}

// measured returns those of the figures that the workload has, without numbers of errors that are all zero.
func (s *summary) measured(work string, names []string) (found []string) {
	for _, name := range names {
		if slices.ContainsFunc(s.samples, func(m sample) bool {
			v, ok := m.Figures[name]
			return m.Work == work && ok && (v != 0 || name != results.Errors)
		}) {
			found = append(found, name)
		}
	}
	return found
}

// stealLimit is the share of stolen time, in percent, above which a table has a warning.
const stealLimit = 10

// stealText describes the stolen time of a workload.
func (s *summary) stealText(work string) string {
	steal := s.steal(work)
	text := fmt.Sprintf("Steal during these measurements: median %s, at most %s.", percent(steal.Median),
		percent(steal.Top))
	if steal.Top > stealLimit {
		text += fmt.Sprintf(" **Warning:** above %d %%, so other machines on the same host have affected some of these "+
			"figures; compare ratios only.", stealLimit)
	}
	return text
}
