package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/progress"
)

const (
	// warmUpWorkers is the load on servers that need a warm-up.
	warmUpWorkers = 16
	// repeats is how often a disturbed round is measured again, at most.
	repeats = 2
)

// Settings of a run.
type Settings struct {
	Kinds  []peers.Kind
	Only   []string // workloads, such as "W1" or "W1/256"; empty for all
	Rounds int
	Length time.Duration // of one measurement; a warm-up of a third of it comes first
	Max    int           // largest number of leases, waiters or sessions; 0 for no limit
	Dir    string        // of the servers' data
	Keep   string        // folder that keeps the profiles; empty to remove them
	// Program is the program of leased; it is built if this is empty.
	Program string
	Line    *progress.Line
	// MaxSteal is the share of the machine's time that the hypervisor may take during a measurement. A round with one in
	// which it takes more is measured again at the end: its ratios compare targets that had different machines.
	MaxSteal float64
	// Measured is called after each measurement, and Finished after all of a case. A round that is measured again
	// replaces the former one.
	Measured func(results.Sample)
	Finished func([]results.Sample)
}

// bench is the state of a run.
type bench struct {
	Settings
	versions      map[string]string
	done, planned int // numbers of measurements
	failures      []error
	samples       map[string][]results.Sample // by case
	targets       map[string]*target          // running, by name
	broken        map[string]bool             // kinds whose servers do not start
}

// Run measures the workloads, and returns the versions of the targets. A target that
// fails is left out; the others are still measured, and the error names it.
func Run(ctx context.Context, settings Settings) (map[string]string, error) {
	chosen, err := selected(settings.Only)
	if err != nil {
		return nil, err
	}
	b := &bench{Settings: settings, versions: map[string]string{}, targets: map[string]*target{},
		broken: map[string]bool{}, samples: map[string][]results.Sample{}}
	for i := range chosen {
		chosen[i].cases = b.limited(chosen[i].cases)
	}
	b.runAll(ctx, chosen, b.allRounds)
	for range repeats {
		b.runAll(ctx, chosen, b.disturbedRounds)
	}
	return b.versions, errors.Join(append(b.failures, ctx.Err())...)
}

// allRounds returns the rounds of every case.
func (b *bench) allRounds(string) (rounds []int) {
	for i := range b.Rounds {
		rounds = append(rounds, i+1)
	}
	return rounds
}

// disturbedRounds returns the rounds of a case in which the hypervisor took too much time.
func (b *bench) disturbedRounds(name string) (rounds []int) {
	for _, s := range b.samples[name] {
		if s.Steal > b.MaxSteal && !slices.Contains(rounds, s.Round) {
			rounds = append(rounds, s.Round)
		}
	}
	return rounds
}

// runAll measures some rounds of all cases.
func (b *bench) runAll(ctx context.Context, workloads []workload, rounds func(name string) []int) {
	for _, w := range workloads {
		for _, sizes := range w.cases {
			b.planned += len(rounds(caseName(w.name, sizes))) * len(b.kindsOf(w, sizes))
		}
	}
	for _, w := range workloads {
		if ctx.Err() == nil {
			b.run(ctx, w, rounds)
		}
	}
}

// limited returns the cases without the sizes above Max. The leases of a case with other sizes are reduced to Max.
func (b *bench) limited(cases []params) (limited []params) {
	for _, sizes := range cases {
		sizes = maps.Clone(sizes)
		if leases := sizes["leases"]; b.Max > 0 && leases > b.Max && len(sizes) > 1 {
			sizes["leases"] = b.Max
		}
		if b.Max == 0 || max(sizes["leases"], sizes["waiters"], sizes["sessions"]) <= b.Max {
			limited = append(limited, sizes)
		}
	}
	return limited
}

// kindsOf returns the kinds that a case is measured on.
func (b *bench) kindsOf(w workload, sizes params) (kinds []peers.Kind) {
	if w.kinds != nil {
		return w.kinds(b.Program, sizes)
	}
	for _, kind := range b.Kinds {
		if w.measures(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// run measures some rounds of all cases of a workload.
func (b *bench) run(ctx context.Context, w workload, rounds func(name string) []int) {
	defer b.stop()
	for _, sizes := range w.cases {
		name, kinds := caseName(w.name, sizes), b.kindsOf(w, sizes)
		chosen := rounds(name)
		for _, round := range chosen {
			for _, kind := range kinds {
				if ctx.Err() != nil {
					return
				}
				if b.broken[kind.Name] {
					b.planned--
					continue
				}
				s := results.Sample{Work: w.name, Target: kind.Name, Params: maps.Clone(sizes), Round: round,
					Figures: map[string]float64{}}
				b.show(s)
				b.done++
				if err := b.measure(ctx, w, kind, &s); err != nil {
					b.failures = append(b.failures, fmt.Errorf("%s with %s, round %d: %w", describe(s), kind.Name, s.Round, err))
					s.Note = firstLine(err)
				}
				b.samples[name] = results.With(b.samples[name], s)
				b.Measured(s)
			}
		}
		if len(chosen) > 0 {
			b.Finished(b.samples[name])
		}
		if w.kinds != nil {
			b.stop()
		}
	}
}

// measure takes one sample. It starts the servers if they do not run.
func (b *bench) measure(ctx context.Context, w workload, kind peers.Kind, s *results.Sample) error {
	t, running := b.targets[kind.Name]
	if !running {
		var err error
		if t, err = b.start(ctx, kind); err != nil {
			b.broken[kind.Name] = true
			return err
		}
		if w.fresh {
			defer t.stop()
		} else {
			b.targets[kind.Name] = t
		}
	}
	err := w.measure(ctx, b, t, s)
	if err != nil && !w.fresh { // the next round starts new servers
		t.stop()
		delete(b.targets, kind.Name)
	}
	return err
}

// start starts the servers of a kind, and warms them up if they need it.
func (b *bench) start(ctx context.Context, kind peers.Kind) (*target, error) {
	cluster, err := kind.Start(ctx, b.Dir)
	if err != nil {
		return nil, err
	}
	t := &target{kind: kind, cluster: cluster, open: kind.Open(cluster.Endpoints)}
	b.versions[kind.Name] = cluster.Version
	if kind.WarmUp > 0 {
		work := load.Work{Kind: load.Own, Workers: warmUpWorkers, Clients: t.clients(warmUpWorkers)}
		if _, err := load.Run(ctx, t.open, work, load.Options{Prefix: "warm-up/", Length: kind.WarmUp}); err != nil {
			cluster.Stop()
			return nil, fmt.Errorf("warm up %s: %w", kind.Name, err)
		}
	}
	return t, nil
}

// stop stops all servers.
func (b *bench) stop() {
	for name, t := range b.targets {
		t.stop()
		delete(b.targets, name)
	}
}

// show shows the progress before a measurement.
func (b *bench) show(s results.Sample) {
	text := fmt.Sprintf("measurement %d of %d: %s with %s", b.done+1, b.planned, describe(s), s.Target)
	if left, known := (progress.Work{Done: int64(b.done), Total: int64(b.planned),
		Elapsed: b.Line.Elapsed()}).Left(); known {
		text += ", " + progress.TimeLeft(left)
	}
	b.Line.Show(text)
}

// describe returns the workload and its sizes, such as "W1 workers=16".
func describe(s results.Sample) string { return caseName(s.Work, s.Params) }

func caseName(work string, sizes params) string {
	words := []string{work}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		words = append(words, name+"="+strconv.Itoa(sizes[name]))
	}
	return strings.Join(words, " ")
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
