// Command prop runs the property tests of all settings with a larger budget than go test,
// and prints how much was checked.
//
// It does not check properties itself: the tests of the settings do, with package
// property. It runs them without the race detector, adds up the reports that they publish,
// runs the fast group of the mutants, and fails on a violation or if too little was
// checked.
//
//	go run ./proptest/prop                  make prop
//	go run ./proptest/prop -duration 1h     make soak: rounds with new seeds, then real
//	                                        processes
//
// Files, in reading order: main.go, one round; setting.go, the tests of a setting;
// minimum.go, what a round must check at least; table.go, the printed table; soak.go, rounds
// for a duration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

func main() {
	seed := flag.Uint64("seed", 1, "first seed")
	duration := flag.Duration("duration", 0,
		"run rounds with new seeds for this long, the last part with real processes; 0 for one round")
	mutants := flag.Bool("mutants", true, "run the fast group of the mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *duration > 0 {
		err = soak(ctx, *seed, *duration)
	} else {
		err = once(ctx, *seed, *mutants)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prop:", err)
		os.Exit(1)
	}
}

var clock = engine.MonotonicClock()

// since returns the time since start, in whole seconds.
func since(start engine.Instant) time.Duration { return clock.Now().Since(start).Round(time.Second) }

// once runs one round and the fast mutants.
func once(ctx context.Context, seed uint64, mutants bool) error {
	start := clock.Now()
	reports, err := round(ctx, seed, 1)
	if err != nil {
		return err
	}
	total := table(os.Stdout, reports)
	fmt.Printf("checked in %v\n\n", since(start))
	err = enough(total, 24*time.Hour, 2_000_000, 5_000)
	if mutants {
		err = errors.Join(err, fastMutants(ctx))
		fmt.Printf("total %v\n", since(start))
	}
	return err
}

// enough reports the figures that are too small.
func enough(total property.Report, virtual time.Duration, operations, faults int) error {
	missed := []error{fewer("in all", int(total.Time.Minutes()), "minutes of virtual time", int(virtual.Minutes())),
		fewer("in all", total.Operations, "operations", operations), fewer("in all", total.Injected(), "faults", faults)}
	for _, p := range property.All {
		missed = append(missed, fewer(string(p), total.Checks[p], "checks", 1))
	}
	if n := len(total.Violations); n > 0 {
		missed = append(missed, fmt.Errorf("%d violations", n))
	}
	return errors.Join(missed...)
}

// round runs every setting once. scale multiplies the budgets.
func round(ctx context.Context, seed uint64, scale float64) ([]property.Report, error) {
	dir, err := os.MkdirTemp("", "leased-prop")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var all []property.Report
	line := progress.New(os.Stderr, func() time.Time { return clock.Now().Time() })
	defer line.End()
	for i, s := range settings {
		line.Stage(fmt.Sprintf("setting %d of %d: %s", i+1, len(settings), s.name), "")
		reports, err := s.run(ctx, filepath.Join(dir, "reports"), seed, scale)
		all = append(all, reports...)
		if err != nil {
			table(os.Stdout, all)
			return all, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := complete(all, scale); err != nil {
		table(os.Stdout, all)
		return all, err
	}
	return all, nil
}
