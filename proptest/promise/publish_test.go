package promise_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/promise"
)

func TestPublish(t *testing.T) {
	name := filepath.Join(t.TempDir(), "reports")
	t.Setenv(promise.ReportFile, "")
	require.NoError(t, promise.Publish(promise.Report{Setting: "nowhere"}))
	t.Setenv(promise.ReportFile, name)
	one := promise.Report{Setting: "one", Runs: 1, Time: time.Hour, Seeds: []uint64{1<<64 - 1},
		Faults: map[string]int{"pause": 3}, Checks: map[promise.Promise]int{promise.T1: 7}}
	two := promise.Report{Setting: "two", Violations: []string{"T1: broken"}}
	require.NoError(t, promise.Publish(one))
	require.NoError(t, promise.Publish(two))

	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	all, err := promise.Reports(f)
	require.NoError(t, err)
	require.Equal(t, []promise.Report{one, two}, all)
}

func TestBudget(t *testing.T) {
	t.Setenv(promise.ScaleFactor, "")
	require.Equal(t, 10, promise.Budget(10))
	t.Setenv(promise.ScaleFactor, "2.5")
	require.Equal(t, 25, promise.Budget(10))
	require.Equal(t, 5*time.Second, promise.Budget(2*time.Second))
	t.Setenv(promise.ScaleFactor, "0.01")
	require.Equal(t, 1, promise.Budget(10))
	t.Setenv(promise.ScaleFactor, "many")
	require.Panics(t, func() { promise.Budget(10) })
}

func TestFirstSeed(t *testing.T) {
	t.Setenv(promise.Seed, "")
	require.EqualValues(t, 1, promise.FirstSeed())
	t.Setenv(promise.Seed, "77")
	require.EqualValues(t, 77, promise.FirstSeed())
	t.Setenv(promise.Seed, "x")
	require.Panics(t, func() { promise.FirstSeed() })
}
