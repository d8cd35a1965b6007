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

func main() {
	s := work.Settings{MaxSteal: 0.1}
	only := flag.String("only", "", "workloads to measure, separated by commas; W1/256 is W1 with 256 workers "+
		"(default W1 to W7): "+strings.Join(work.Names(), ", "))
	targets := flag.String("targets", "", "services to measure, separated by commas (default all: "+
		strings.Join(names(peers.Kinds("")), ", ")+")")
	flag.IntVar(&s.Rounds, "rounds", 5, "number of measurements of each target; the targets alternate")
	flag.DurationVar(&s.Length, "time", 3*time.Second, "length of one measurement, after a warm-up of a third of it")
	flag.IntVar(&s.Max, "max", 0, "largest number of leases, waiters or sessions (default: no limit)")
	flag.StringVar(&s.Keep, "keep", "", "folder that keeps the profiles of the workload profile, for 'go tool pprof' "+
		"(default: they are removed)")
	out := flag.String("out", "", "file for the results, as JSON")
	flag.StringVar(&s.Program, "leased", "", "program of the members of leased (default: built from this repository)")
	child := flag.String("child", "", "internal: run as one of the processes of a workload")
	flag.Parse()
	s.Only = list(*only)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var err error
	if *child != "" {
		err = work.Child(ctx, peers.Kinds(s.Program), *child, os.Stdin, os.Stdout)
	} else {
		err = compare(ctx, s, list(*targets), *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// compare measures all chosen targets, prints the medians and stores the samples in a file.
func compare(ctx context.Context, s work.Settings, targets []string, out string) (err error) {
	// Only root can raise the limit: with other users the system's limit holds.
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: openFiles, Max: openFiles})
	if s.Kinds, err = choose(peers.Kinds(s.Program), targets); err != nil {
		return err
	}
	if s.Dir, err = os.MkdirTemp("", "leased-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.Dir)
	run := results.Run{Machine: meter.Machine(s.Dir), Started: time.Now().UTC(),
		Command: "go run . " + strings.Join(os.Args[1:], " "), Commit: meter.Commit()}
	s.Line = progress.New(os.Stderr, time.Now)
	defer s.Line.End()
	var failed error
	s.Measured = func(sample results.Sample) {
		run.Samples = results.With(run.Samples, sample)
		if out != "" { // after each sample, so that an interrupted run is not lost
			failed = errors.Join(failed, run.Write(out))
		}
	}
	s.Finished = func(samples []results.Sample) { failed = errors.Join(failed, work.Table(os.Stdout, samples)) }
	run.Versions, err = work.Run(ctx, s)
	if out != "" && len(run.Samples) > 0 {
		failed = errors.Join(failed, run.Write(out))
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
