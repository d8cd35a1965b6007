package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/property"
)

func TestTable(t *testing.T) {
	var out strings.Builder
	total := table(&out, []property.Report{
		{Setting: "one", Seeds: []uint64{3, 7}, Runs: 2, Time: time.Hour, Operations: 10, Faults: map[string]int{"pause": 2}},
		{Setting: "two", Runs: 1, Time: time.Minute, Operations: 5, Faults: map[string]int{"crash": 9},
			Violations: []string{"T1 is broken"}},
		{Setting: "one", Seeds: []uint64{9}, Runs: 1, Time: time.Hour, Operations: 1},
	})
	require.Equal(t, 16, total.Operations)
	require.Equal(t, 11, total.Injected())
	lines := strings.Split(out.String(), "\n")
	require.Regexp(t, `one\s+3-9\s+3\s+2h0m0s\s+11\s+2`, lines[1])
	require.Regexp(t, `two\s+-\s+1\s+1m0s\s+5\s+9`, lines[2])
	require.Regexp(t, `total\s+4\s+2h1m0s\s+16\s+11`, lines[3])
	require.Regexp(t, `(?s)9  crash.*2  pause.*VIOLATION T1 is broken`, out.String())
}

func TestEnough(t *testing.T) {
	good := property.Report{Time: 24 * time.Hour, Operations: 100, Faults: map[string]int{"pause": 10},
		Checks: map[property.Name]int{}}
	require.ErrorContains(t, enough(good, 24*time.Hour, 100, 10), "0 checks, less than 1")
	for _, p := range property.All {
		good.Checks[p] = 1
	}
	require.NoError(t, enough(good, 24*time.Hour, 100, 10))
	require.ErrorContains(t, enough(good, 25*time.Hour, 100, 10), "1440 minutes of virtual time, less than 1500")
	require.ErrorContains(t, enough(good, time.Hour, 101, 10), "100 operations, less than 101")
	require.ErrorContains(t, enough(good, time.Hour, 100, 11), "10 faults, less than 11")
	good.Violations = []string{"x"}
	require.ErrorContains(t, enough(good, time.Hour, 100, 10), "1 violations")
	require.NoError(t, often(good, "pause", 10))
	require.ErrorContains(t, often(good, "kill", 1), "0 kill, less than 1")
}

// A setting without a report is an error.
func TestMissingReportIsAnError(t *testing.T) {
	_, err := setting{name: "silent", folder: "./silent"}.published(t.TempDir()+"/none", 1)
	require.ErrorContains(t, err, "published")
}

// The folder of a scenario is writable for PostgreSQL, which runs as another user.
func TestScenarioFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := ownFolder()
	require.NoError(t, err)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|os.ModeSticky|0o777, info.Mode())
	require.Contains(t, torture(t.Context(), dir).Environ(), "TMPDIR="+dir)
}
