package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leased-project/leased/proptest/promise"
)

const (
	// realShare is what part of a soak belongs to real processes, in percent.
	realShare = 40
	// stride is how far apart the seeds of two rounds are.
	stride = 1000
)

// soak is make soak: rounds with new seeds, then real processes, then one report.
func soak(ctx context.Context, seed uint64, duration time.Duration) error {
	begun := clock.Now()
	virtual := duration * (100 - realShare) / 100
	var reports []promise.Report
	for n := uint64(0); n == 0 || since(begun) < virtual; n++ {
		found, err := round(ctx, seed+n*stride, 1)
		reports = merged(append(reports, found...))
		if err != nil {
			return err
		}
		fmt.Printf("soak: round %d, %v\n", n+1, since(begun))
	}
	real, err := processes(ctx, seed, max(time.Minute, duration-since(begun)))
	total := table(os.Stdout, append(reports, real))
	fmt.Printf("soaked for %v\n", since(begun))
	hours := duration.Hours()
	at := func(perHour int) int { return int(hours * float64(perHour)) }
	return errors.Join(err, enough(total, time.Duration(hours*250*float64(time.Hour)), at(10_000_000), at(20_000)),
		often(real, "killed", at(300)), often(real, "paused", at(300)))
}

// often reports whether real processes were broken often enough in a way.
func often(r promise.Report, word string, least int) error {
	n := 0
	for kind, times := range r.Faults {
		if strings.Contains(kind, word) {
			n += times
		}
	}
	if n < least {
		return fmt.Errorf("a real process was %s %d times, less than %d", word, n, least)
	}
	return nil
}

// processes is the leg with real processes.
func processes(ctx context.Context, seed uint64, d time.Duration) (promise.Report, error) {
	dir, err := os.MkdirTemp("", "leased-soak")
	if err != nil {
		return promise.Report{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "torture.json")
	c := exec.CommandContext(ctx, "go", "run", "./cmd/leased", "torture", "--duration", d.Round(time.Second).String(),
		"--seed", fmt.Sprint(seed), "--report", file)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	err = c.Run()
	report := promise.Report{Setting: "real processes"}
	data, readErr := os.ReadFile(file)
	if readErr == nil {
		readErr = json.Unmarshal(data, &report)
	}
	if len(report.Seeds) == 0 {
		report.Seeds = []uint64{seed}
	}
	return report, errors.Join(err, readErr)
}
