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
			cell := "-"
			if all := spreadOf(byTarget[name], c.figure); all.Count > 0 {
				cell = results.Number(all.Median)
			}
			fmt.Fprintf(w, "%s\t", cell)
		}
		rates, steal := "-", 0.0
		if all := spreadOf(byTarget[name], results.Rate); all.Count > 0 {
			rates = fmt.Sprintf("%.0f..%.0f", all.Low, all.Top)
		}
		for _, s := range byTarget[name] {
			steal = max(steal, s.Steal)
		}
		fmt.Fprintf(w, "%s\t%.0f %%\t\n", rates, 100*steal)
	}
	return w.Flush()
}

// spreadOf returns the spread of a figure.
func spreadOf(samples []results.Sample, figure string) results.Spread {
	var values []float64
	for _, s := range samples {
		if v, ok := s.Figures[figure]; ok {
			values = append(values, v)
		}
	}
	return results.NewSpread(values)
}
