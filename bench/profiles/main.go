package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/progress"
)

// sizes are the numbers of workers that are profiled.
var sizes = []int{1, 16, 256}

func main() {
	program := flag.String("leased", "", "program of the members (default: built from this repository)")
	length := flag.Duration("time", 10*time.Second, "length of a profile")
	out := flag.String("out", "profiles.json", "file for the results")
	keep := flag.String("keep", "", "folder that keeps the profiles, for 'go tool pprof' (default: they are removed)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := all(ctx, *program, *length, *keep, *out); err != nil {
		fmt.Fprintln(os.Stderr, "profile leased:", err)
		os.Exit(1)
	}
}

// all profiles a service under each load, and stores the shares.
func all(ctx context.Context, program string, length time.Duration, keep, out string) error {
	dir, err := os.MkdirTemp("", "leased-profiles-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if keep == "" {
		keep = dir
	} else if err := os.MkdirAll(keep, 0o755); err != nil {
		return err
	}
	line := progress.New(os.Stderr, time.Now)
	defer line.End()
	line.Show("starting three members")
	started, err := leased.Raft(program).Start(ctx, dir)
	if err != nil {
		return err
	}
	defer started.Stop()
	peer := started.(peers.Profiler)
	run := results.Run{Machine: meter.Machine(dir), Versions: map[string]string{peer.Name(): peer.Version()}, Started: time.Now().UTC(),
		Command: "go run ./profiles " + strings.Join(os.Args[1:], " "), Commit: meter.Commit()}
	for _, workers := range sizes {
		line.Show(fmt.Sprintf("profiling %d workers", workers))
		samples, err := profile(ctx, peer, workers, length, keep)
		if err != nil {
			return fmt.Errorf("with %d workers: %w", workers, err)
		}
		run.Samples = append(run.Samples, samples...)
	}
	return run.Write(out)
}

// profile takes the profiles of all processes while workers use locks of their own.
func profile(ctx context.Context, peer peers.Profiler, workers int, length time.Duration, folder string) ([]results.Sample, error) {
	leader, follower, err := peer.Profiles(ctx)
	if err != nil {
		return nil, err
	}
	r := &recorder{folder: folder, workers: workers, length: length, servers: map[string]string{"leader": leader, "follower": follower}}
	m := meter.New(peer.Pids)
	result, err := load.Run(ctx, peer, load.Own{Workers: workers, Clients: 1}, load.Options{WarmUp: time.Second, Length: length + time.Second,
		Begin: func() { m.Begin(); r.begin(ctx) }, End: func() { m.End(); r.end() }})
	if err := errors.Join(err, r.err); err != nil {
		return nil, err
	}
	if result.Pairs == 0 {
		return nil, fmt.Errorf("no lock was granted: %s", result.FirstError)
	}
	var samples []results.Sample
	for process, file := range r.files {
		shares, err := read(ctx, file)
		if err != nil {
			return nil, err
		}
		samples = append(samples, results.Sample{Work: results.Profile, Target: process, Params: map[string]int{"workers": workers}, Round: 1,
			Figures: shares, Steal: m.Usage().Steal})
	}
	return samples, nil
}
