package work

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/leased-project/leased/bench/results"
)

// columns are the figures of the table, in order.
var columns = []struct{ figure, title string }{
	{results.Rate, "pairs/s"}, {results.P50, "p50 ms"}, {results.P99, "p99 ms"}, {results.PairP50, "pair p50 ms"},
	{results.CPU, "CPU ms/1000"}, {results.CPUServers, "of servers"}, {results.Fairness, "fairness"},
	{results.TakeSeconds, "take s"}, {results.MemoryLeader, "bytes/lease, most"},
	{results.MemoryFollower, "bytes/lease, others"},
	{results.FailoverMillis, "first grant ms"}, {results.LastMillis, "last grant ms"}, {results.Errors, "errors"},
}

// Table prints the medians of the samples of one case, a line for each target, with the
// least and the greatest rate, and the greatest steal.
func Table(out io.Writer, samples []results.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	byTarget, targets := map[string][]results.Sample{}, []string(nil)
	for _, s := range samples {
		if byTarget[s.Target] == nil {
			targets = append(targets, s.Target)
		}
		byTarget[s.Target] = append(byTarget[s.Target], s)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\t", describe(samples[0]))
	shown := columns[:0:0]
	for _, c := range columns {
		if slices.ContainsFunc(samples, func(s results.Sample) bool { return s.Figures[c.figure] != 0 }) {
			shown = append(shown, c)
			fmt.Fprintf(w, "%s\t", c.title)
		}
	}
	fmt.Fprint(w, "range of rate\tsteal\t\n")
	for _, name := range targets {
		fmt.Fprintf(w, "%s\t", name)
		for _, c := range shown {
			fmt.Fprintf(w, "%s\t", short(median(valuesOf(byTarget[name], c.figure))))
		}
		rates := valuesOf(byTarget[name], results.Rate)
		var steal float64
		for _, s := range byTarget[name] {
			steal = max(steal, s.Steal)
		}
		fmt.Fprintf(w, "%s\t%.0f %%\t\n", rangeOf(rates), 100*steal)
	}
	return w.Flush()
}

// valuesOf returns the sorted values of a figure.
func valuesOf(samples []results.Sample, figure string) (values []float64) {
	for _, s := range samples {
		if v, ok := s.Figures[figure]; ok {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// median returns the middle of sorted values, and whether there is one.
func median(sorted []float64) (float64, bool) {
	if len(sorted) == 0 {
		return 0, false
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, true
}

func short(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func rangeOf(sorted []float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f..%.0f", sorted[0], sorted[len(sorted)-1])
}
