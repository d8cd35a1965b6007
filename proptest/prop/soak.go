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

	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/proptest/property"
)

const (
	// realShare is the share of a soak with real processes, in percent.
	realShare = 40
	// stride is the distance between the first seeds of two rounds.
	stride = 1000
)

// soak runs rounds with new seeds, then real processes, and prints one report.
func soak(ctx context.Context, seed uint64, duration time.Duration) error {
	start := clock.Now()
	virtual := duration * (100 - realShare) / 100
	var reports []property.Report
	var longest time.Duration
	for n := uint64(0); n == 0 || since(start)+longest <= virtual; n++ {
		begin := clock.Now()
		found, err := round(ctx, seed+n*stride, 1)
		longest = max(longest, since(begin))
		reports = merged(append(reports, found...))
		if err != nil {
			return err
		}
		fmt.Printf("soak: round %d, %v, %s\n", n+1, since(start), progress.Until(duration, since(start)))
	}
	// Rounds take longer on a busy machine, which must not shorten the part with real
	// processes.
	real, err := processes(ctx, seed, max(time.Minute, duration-virtual, duration-since(start)))
	total := table(os.Stdout, append(reports, real))
	fmt.Printf("soak took %v\n", since(start))
	hours := duration.Hours()
	at := func(perHour int) int { return int(hours * float64(perHour)) }
	return errors.Join(err, enough(total, time.Duration(hours*250*float64(time.Hour)), at(10_000_000), at(20_000)),
		often(real, "killed", at(300)), often(real, "paused", at(300)))
}

// often reports an error if faults of real processes that contain word were too rare.
func often(r property.Report, word string, least int) error {
	n := 0
	for kind, times := range r.Faults {
		if strings.Contains(kind, word) {
			n += times
		}
	}
	return fewer("real processes", n, word, least)
}

// scenarioTime is the duration of each scenario with one fault.
const scenarioTime = time.Minute

// processes runs real processes: random faults, then each scenario with one fault. A
// failed scenario keeps its files.
func processes(ctx context.Context, seed uint64, d time.Duration) (property.Report, error) {
	report := property.Report{Setting: "real processes"}
	for _, part := range []struct {
		scenario string
		length   time.Duration
	}{{"random", max(scenarioTime, d-2*scenarioTime)}, {"emptied", scenarioTime}, {"leaderless", scenarioTime}} {
		found, err := scenario(ctx, part.scenario, seed, part.length)
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
	err = torture(ctx, dir, "--scenario", name, "--duration", d.Round(time.Second).String(), "--seed", fmt.Sprint(seed),
		"--report", file).Run()
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

// torture returns the command of a scenario, with its temporary files in a folder.
func torture(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/leased-torture"}, args...)...)
	c.Env = append(os.Environ(), "TMPDIR="+dir)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c
}

// ownFolder creates the folder for the temporary files of a scenario.
func ownFolder() (string, error) {
	dir, err := os.MkdirTemp("", "leased-soak-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o777|os.ModeSticky) // PostgreSQL runs as another user
}
