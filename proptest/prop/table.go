package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leased-project/leased/proptest/property"
)

// merged adds up the reports of each setting, in their order.
func merged(reports []property.Report) []property.Report {
	var all []property.Report
	for _, r := range reports {
		i := slices.IndexFunc(all, func(m property.Report) bool { return m.Setting == r.Setting })
		if i < 0 {
			all = append(all, property.Report{Setting: r.Setting})
			i = len(all) - 1
		}
		all[i].Add(r)
	}
	return all
}

// table prints the figures of each setting and returns the sums.
func table(w io.Writer, reports []property.Report) property.Report {
	total := property.Report{Setting: "total"}
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "SETTING\tSEEDS\tRUNS\tTIME\tOPERATIONS\tFAULTS\tGRANTS\tSTALE WRITES "+
		"REFUSED\tOVERLAPS\tVIOLATIONS\t")
	row := func(r property.Report, seeds string) {
		fmt.Fprintf(out, "%s\t%s\t%d\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Setting, seeds, r.Runs, r.Time.Round(time.Second),
			r.Operations,
			r.Injected(), r.Grants, r.Stale, r.Overlaps, len(r.Violations))
	}
	for _, r := range merged(reports) {
		row(r, span(r.Seeds))
		total.Add(r)
	}
	row(total, "")
	out.Flush()
	kinds := slices.SortedFunc(maps.Keys(total.Faults), func(a, b string) int {
		return cmp.Or(cmp.Compare(total.Faults[b], total.Faults[a]), strings.Compare(a, b))
	})
	fmt.Fprintln(w, "\nfaults by kind:")
	for _, kind := range kinds {
		fmt.Fprintf(w, "%10d  %s\n", total.Faults[kind], kind)
	}
	fmt.Fprintln(w, "\nchecks of each property:")
	for _, p := range property.All {
		fmt.Fprintf(w, "%10d  %s\n", total.Checks[p], p)
	}
	for _, v := range total.Violations {
		fmt.Fprintln(w, "VIOLATION", v)
	}
	return total
}

// span formats the first and the last seed.
func span(seeds []uint64) string {
	if len(seeds) == 0 {
		return "-"
	}
	first, last := slices.Min(seeds), slices.Max(seeds)
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}
