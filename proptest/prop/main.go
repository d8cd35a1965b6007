// Command prop holds the promises against the code, with a budget that the tests
// alone do not take, and prints how much was checked.
//
// It does not decide what a promise is: package property does, and the tests of
// the settings hold it against what they do. It runs them without the race
// detector, adds up what they publish, tries the fast group of the mutants, and
// fails if anything was broken or if less was checked than it should.
//
//	go run ./proptest/prop                  what make prop does, a few minutes
//	go run ./proptest/prop -duration 1h     what make soak does: round after round
//	                                        with new seeds, then real processes
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

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

func main() {
	seed := flag.Uint64("seed", 1, "where to begin to count the seeds")
	duration := flag.Duration("duration", 0, "go on for this long with new seeds, then with real processes; 0 for one round")
	mutants := flag.Bool("mutants", true, "try the fast group of the mutants")
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

// since is how long something took, in whole seconds.
func since(begun engine.Instant) time.Duration { return clock.Now().Since(begun).Round(time.Second) }

// once is make prop.
func once(ctx context.Context, seed uint64, mutants bool) error {
	begun := clock.Now()
	reports, err := round(ctx, seed, 1)
	if err != nil {
		return err
	}
	total := table(os.Stdout, reports)
	fmt.Printf("checked in %v\n\n", since(begun))
	err = enough(total, 24*time.Hour, 2_000_000, 5_000)
	if mutants {
		err = errors.Join(err, fastMutants(ctx))
		fmt.Printf("in all %v\n", since(begun))
	}
	return err
}

// enough reports which figures were missed.
func enough(total property.Report, virtual time.Duration, operations, faults int) error {
	var missed []error
	if total.Time < virtual {
		missed = append(missed, fmt.Errorf("%v of virtual time, less than %v", total.Time.Round(time.Second), virtual))
	}
	if total.Operations < operations {
		missed = append(missed, fmt.Errorf("%d operations, less than %d", total.Operations, operations))
	}
	if n := total.Injected(); n < faults {
		missed = append(missed, fmt.Errorf("%d faults, less than %d", n, faults))
	}
	for _, p := range property.All {
		if total.Checks[p] == 0 {
			missed = append(missed, fmt.Errorf("%s was never looked at", p))
		}
	}
	if n := len(total.Violations); n > 0 {
		missed = append(missed, fmt.Errorf("%d violations", n))
	}
	return errors.Join(missed...)
}

// round runs every setting once. scale makes it larger or smaller.
func round(ctx context.Context, seed uint64, scale float64) ([]property.Report, error) {
	dir, err := os.MkdirTemp("", "leased-prop")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var all []property.Report
	for _, s := range settings {
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
