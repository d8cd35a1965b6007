package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// figures are the results of one measurement.
type figures struct {
	pairs      float64 // per second
	p50, p99   time.Duration
	cpu        float64 // milliseconds of CPU time per 1,000 pairs, servers and client
	serverPart float64
	errors     int64
}

// own measures callers that each acquire and release their own lock. pids are the
// processes that serve them.
func own(d driver, pids []int, callers int, length time.Duration) figures {
	ctx := context.Background()
	for c := range callers { // opens connections, loads scripts
		_ = d.pair(ctx, "own/"+strconv.Itoa(c), nil)
	}
	var stop atomic.Bool
	var failed atomic.Int64
	times := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	cpu, servers, began := ownTime(), cpuTime(pids), time.Now()
	for c := range callers {
		name := "own/" + strconv.Itoa(c)
		wg.Go(func() {
			for !stop.Load() {
				t := time.Now()
				if err := d.pair(ctx, name, nil); err != nil {
					failed.Add(1)
					continue
				}
				times[c] = append(times[c], time.Since(t))
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	wg.Wait()
	took := time.Since(began)
	onServers := cpuTime(pids) - servers
	all := slices.Concat(times...)
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return figures{errors: failed.Load()}
	}
	perThousand := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	return figures{pairs: float64(n) / took.Seconds(), p50: all[n/2], p99: all[n*99/100], errors: failed.Load(),
		cpu: perThousand(onServers + ownTime() - cpu), serverPart: perThousand(onServers)}
}

// kinds returns the drivers that are measured with a number of callers.
func (b *bench) kinds(callers int) []string {
	kinds := slices.Clone(drivers)
	if callers == 64 {
		kinds = kinds[:3]
	}
	return slices.DeleteFunc(kinds, func(kind string) bool { return !chosen(b.driver, kind) })
}

// own alternates between the drivers, so that other load on the machine affects all of them.
func (b *bench) own(callers int) error {
	results := map[string][]figures{}
	before := readTimes()
	for range b.rounds {
		for _, kind := range b.kinds(callers) {
			b.measure(fmt.Sprintf("%s with %d callers", kind, callers))
			d, err := b.dial(kind)
			if err != nil {
				return err
			}
			results[kind] = append(results[kind], own(d, b.pids(kind), callers, b.length))
			d.close()
		}
	}
	fmt.Fprintf(b.out, "\ncallers: %d, each with its own lock; %s\n", callers, readTimes().since(before))
	fmt.Fprintf(b.out, "\t%s\tdirect/redsync\tmember/redsync\tmember/correctness\n", strings.Join(drivers, "\t"))
	b.rows(callers, results)
	return b.out.Flush()
}

// targets are the intended ratios, by callers and figure: direct to redsync, member to
// redsync, member to correctness.
var targets = map[string][3]string{
	"256 pairs/s":                {">= 6", ">= 4", ">= 1.5"},
	"64 pairs/s":                 {">= 4"},
	"1 p50 us":                   {"<= 0.6", "<= 1.5"},
	"256 CPU ms per 1,000 pairs": {"<= 0.25"},
}

func (b *bench) rows(callers int, results map[string][]figures) {
	for _, row := range []struct {
		name  string
		value func(f figures) float64
	}{
		{"pairs/s", func(f figures) float64 { return f.pairs }},
		{"p50 us", func(f figures) float64 { return float64(f.p50.Microseconds()) }},
		{"p99 us", func(f figures) float64 { return float64(f.p99.Microseconds()) }},
		{"CPU ms per 1,000 pairs", func(f figures) float64 { return f.cpu }},
		{"servers' part of it", func(f figures) float64 { return f.serverPart }},
		{"errors", func(f figures) float64 { return float64(f.errors) }},
	} {
		fmt.Fprint(b.out, row.name)
		values := map[string]float64{}
		for _, kind := range drivers {
			if len(results[kind]) == 0 {
				fmt.Fprint(b.out, "\t-")
				continue
			}
			values[kind] = median(results[kind], row.value)
			fmt.Fprintf(b.out, "\t%.1f", values[kind])
		}
		target := targets[fmt.Sprintf("%d %s", callers, row.name)]
		for i, pair := range [][2]string{{"direct", "redsync"}, {"member", "redsync"}, {"member", "correctness"}} {
			fmt.Fprintf(b.out, "\t%s", ratio(values, pair, target[i]))
		}
		fmt.Fprintln(b.out)
	}
}

// ratio returns the quotient of two drivers' figures, and the target.
func ratio(values map[string]float64, pair [2]string, target string) string {
	a, okA := values[pair[0]]
	b, okB := values[pair[1]]
	if !okA || !okB || b == 0 {
		return ""
	}
	if target != "" {
		target = " (" + target + ")"
	}
	return fmt.Sprintf("%.2f%s", a/b, target)
}

func median[T any](all []T, value func(T) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, value(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
