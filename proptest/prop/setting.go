package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/leased-project/leased/proptest/property"
)

// setting is a package of property tests.
type setting struct {
	name   string
	folder string
	tests  string  // regular expression of test names
	scale  float64 // factor of their budget in a round, compared to go test
	rapid  bool    // they use rapid's seed
	// counts has the minimum of each unit that the tests print a number of, if they
	// publish no reports.
	counts map[string]int
}

// settings are the settings without real processes.
var settings = []setting{
	{name: "simulator", folder: "./proptest/sim", tests: "^(TestSeeds|TestDrawnFaults)$", scale: 90, rapid: true},
	{name: "virtual time", folder: "./proptest/virtual", tests: "", scale: 1, rapid: true},
	{name: "exhaustive search", folder: "./proptest/redlock",
		tests: "^(TestEveryInterleaving|TestRandomWalks|TestEveryRuleIsNeeded)$", scale: 1,
		counts: map[string]int{"states": 1_000_000, "steps": 400_000}},
}

// run runs the tests of a setting and returns their reports.
func (s setting) run(ctx context.Context, file string, seed uint64, scale float64) ([]property.Report, error) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	args := []string{"test", "-count=1", "-vet=off", "-timeout=20m", "-v", "-run", s.tests, s.folder}
	if s.rapid {
		args = append(args, "-rapid.seed="+strconv.FormatUint(seed, 10), "-rapid.nofailfile")
	}
	c := exec.CommandContext(ctx, "go", args...)
	c.Env = append(os.Environ(), property.ReportVariable+"="+file,
		property.ScaleVariable+"="+strconv.FormatFloat(s.scale*scale, 'f', -1, 64),
		property.SeedVariable+"="+strconv.FormatUint(seed, 10))
	output, err := c.CombinedOutput()
	if err == nil && s.counts != nil {
		return nil, s.counted(string(output), scale)
	}
	reports, readErr := s.published(file, seed)
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, tail(string(output), 60))
	}
	return reports, errors.Join(err, readErr)
}

// counted adds up the numbers that the tests printed, and reports those below the minimum.
func (s setting) counted(output string, scale float64) error {
	var missed []error
	for _, unit := range slices.Sorted(maps.Keys(s.counts)) {
		n := 0
		for _, match := range regexp.MustCompile(`(\d+) `+unit).FindAllStringSubmatch(output, -1) {
			one, _ := strconv.Atoi(match[1])
			n += one
		}
		fmt.Printf("%s: %d %s\n\n", s.name, n, unit)
		missed = append(missed, fewer(s.folder, n, unit, int(float64(s.counts[unit])*scale)))
	}
	return errors.Join(missed...)
}

func (s setting) published(file string, seed uint64) ([]property.Report, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("no test of %s has published a report: %w", s.folder, err)
	}
	defer f.Close()
	reports, err := property.Reports(f)
	for i := range reports {
		if len(reports[i].Seeds) == 0 {
			reports[i].Seeds = []uint64{seed}
		}
	}
	return reports, err
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// fastMutants runs the fast group of the mutants.
func fastMutants(ctx context.Context) error {
	c := exec.CommandContext(ctx, "go", "run", "./proptest/mutants", "-group", "fast", "-parallel", "2")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	return nil
}
