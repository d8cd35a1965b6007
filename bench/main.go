// Command bench compares leased with other lock services under load, on one machine, in
// one run.
//
// It does not measure a network. Everything runs on one machine over loopback, so CPU
// time, system calls and the disk dominate. Only the ratios of one run carry over to
// other machines, and on a busy machine they vary too, so each sample also has the steal
// time of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/bench/work"
	"github.com/leased-project/leased/internal/progress"
)

// openFiles is the number of files that the servers may open. A member accepts a third as many connections, and each of
// 10,000 clients has two.
const openFiles = 100_000

// flags of the command line.
type flags struct {
	only, targets, out, program, profile, keep string
	rounds, max                                int
	length                                     time.Duration
}

func main() {
	var f flags
	flag.StringVar(&f.only, "only", "", "workloads to measure, separated by commas; W1/256 is W1 with 256 workers "+
		"(default W1 to W7): "+strings.Join(work.Names(), ", "))
	flag.StringVar(&f.targets, "targets", "", "services to measure, separated by commas (default all: "+
		strings.Join(names(peers.Kinds("")), ", ")+")")
	flag.IntVar(&f.rounds, "rounds", 5, "number of measurements of each target; the targets alternate")
	flag.DurationVar(&f.length, "time", 3*time.Second, "length of one measurement, after a warm-up of a third of it")
	flag.IntVar(&f.max, "max", 0, "largest number of leases, waiters or sessions (default: no limit)")
	flag.StringVar(&f.keep, "keep", "", "folder that keeps the profiles of the workload profile, for 'go tool pprof' "+
		"(default: they are removed)")
	flag.StringVar(&f.out, "out", "", "file for the results, as JSON")
	flag.StringVar(&f.program, "leased", "", "program of the members of leased (default: built from this repository)")
	flag.StringVar(&f.profile, "cpuprofile", "", "file for a CPU profile of this process, the client")
	child := flag.String("child", "", "internal: run as one of the processes of a workload")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var err error
	if *child != "" {
		err = work.Child(ctx, peers.Kinds(f.program), *child, os.Stdin, os.Stdout)
	} else {
		err = profiled(f.profile, func() error { return compare(ctx, f) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// compare measures all chosen targets, prints the medians and stores the samples.
func compare(ctx context.Context, f flags) error {
	// Only root can raise the limit: with other users the system's limit holds.
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: openFiles, Max: openFiles})
	kinds, err := choose(peers.Kinds(f.program), list(f.targets))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "leased-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	run := results.Run{Machine: meter.Machine(dir), Started: time.Now().UTC(),
		Command: "go run . " + strings.Join(os.Args[1:], " "), Commit: meter.Commit()}
	line := progress.New(os.Stderr, time.Now)
	defer line.End()
	var failed error
	run.Versions, err = work.Run(ctx, work.Settings{
		Kinds: kinds, Only: list(f.only), Rounds: f.rounds, Length: f.length, Max: f.max, Dir: dir, Keep: f.keep,
		MaxSteal: 0.1,
		Program:  f.program, Line: line,
		Measured: func(s results.Sample) {
			run.Samples = results.With(run.Samples, s)
			if f.out != "" { // after each sample, so that an interrupted run is not lost
				failed = errors.Join(failed, run.Write(f.out))
			}
		},
		Finished: func(samples []results.Sample) { failed = errors.Join(failed, work.Table(os.Stdout, samples)) },
	})
	if f.out != "" && len(run.Samples) > 0 {
		failed = errors.Join(failed, run.Write(f.out))
	}
	return errors.Join(err, failed)
}

// list splits a value of the command line.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func names(kinds []peers.Kind) (names []string) {
	for _, kind := range kinds {
		names = append(names, kind.Name)
	}
	return names
}

// choose returns the kinds with the given names, in the order of the table; without
// names, all.
func choose(kinds []peers.Kind, chosen []string) ([]peers.Kind, error) {
	for _, name := range chosen {
		if !slices.Contains(names(kinds), name) {
			return nil, fmt.Errorf("there is no target %q: choose from %s", name, strings.Join(names(kinds), ", "))
		}
	}
	if len(chosen) == 0 {
		return kinds, nil
	}
	return slices.DeleteFunc(kinds, func(kind peers.Kind) bool { return !slices.Contains(chosen, kind.Name) }), nil
}

// profiled runs do, and writes a CPU profile of it if file is not empty.
func profiled(file string, do func() error) error {
	if file == "" {
		return do()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}
