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

	"github.com/leased-project/leased/proptest/property"
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
	var reports []property.Report
	var longest time.Duration
	for n := uint64(0); n == 0 || since(begun)+longest <= virtual; n++ {
		start := clock.Now()
		found, err := round(ctx, seed+n*stride, 1)
		longest = max(longest, since(start))
		reports = merged(append(reports, found...))
		if err != nil {
			return err
		}
		fmt.Printf("soak: round %d, %v\n", n+1, since(begun))
	}
	// A busy machine makes the rounds longer, but not the leg shorter: its figures
	// are counted too.
	real, err := processes(ctx, seed, max(time.Minute, duration-virtual, duration-since(begun)))
	total := table(os.Stdout, append(reports, real))
	fmt.Printf("soaked for %v\n", since(begun))
	hours := duration.Hours()
	at := func(perHour int) int { return int(hours * float64(perHour)) }
	return errors.Join(err, enough(total, time.Duration(hours*250*float64(time.Hour)), at(10_000_000), at(20_000)),
		often(real, "killed", at(300)), often(real, "paused", at(300)))
}

// often reports whether real processes were broken often enough in a way.
func often(r property.Report, word string, least int) error {
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

// scenarioTime is the length of each scenario with one fault.
const scenarioTime = time.Minute

// processes is the leg with real processes: faults at random, then each scenario with
// one fault. A leg that fails keeps its files.
func processes(ctx context.Context, seed uint64, d time.Duration) (property.Report, error) {
	report := property.Report{Setting: "real processes"}
	for _, leg := range []struct {
		scenario string
		length   time.Duration
	}{{"random", max(scenarioTime, d-2*scenarioTime)}, {"emptied", scenarioTime}, {"leaderless", scenarioTime}} {
		found, err := scenario(ctx, leg.scenario, seed, leg.length)
		report.Add(found)
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

// scenario runs one scenario with real processes.
func scenario(ctx context.Context, name string, seed uint64, d time.Duration) (property.Report, error) {
	dir, err := ownFolder()
	if err != nil {
		return property.Report{}, err
	}
	file := filepath.Join(dir, "torture.json")
	err = torture(ctx, dir, "--scenario", name, "--duration", d.Round(time.Second).String(), "--seed", fmt.Sprint(seed), "--report", file).Run()
	report := property.Report{}
	data, readErr := os.ReadFile(file)
	if readErr == nil {
		readErr = json.Unmarshal(data, &report)
	}
	if len(report.Seeds) == 0 {
		report.Seeds = []uint64{seed}
	}
	if err = errors.Join(err, readErr); err != nil {
		return report, fmt.Errorf("real processes, scenario %s, see %s: %w", name, dir, err)
	}
	return report, os.RemoveAll(dir)
}

// torture is the command of the leg, which keeps its temporary files in a folder.
func torture(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/leased-torture"}, args...)...)
	c.Env = append(os.Environ(), "TMPDIR="+dir)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c
}

// ownFolder makes the folder in which the leg has all its temporary files. One
// was once swept away in the middle of a soak, by somebody who removed what
// other runs of leased-torture had left in the temporary folder of the machine.
func ownFolder() (string, error) {
	dir, err := os.MkdirTemp("", "leased-soak-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o777|os.ModeSticky) // PostgreSQL runs as another user
}
