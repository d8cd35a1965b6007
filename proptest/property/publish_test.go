package property_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/property"
)

func TestPublish(t *testing.T) {
	name := filepath.Join(t.TempDir(), "reports")
	t.Setenv(property.ReportVariable, "")
	require.NoError(t, property.Publish(property.Report{Setting: "nowhere"}))
	t.Setenv(property.ReportVariable, name)
	one := property.Report{Setting: "one", Runs: 1, Time: time.Hour, Seeds: []uint64{1<<64 - 1},
		Faults: map[string]int{"pause": 3}, Checks: map[property.Name]int{property.T1: 7}}
	two := property.Report{Setting: "two", Violations: []string{"T1: broken"}}
	require.NoError(t, property.Publish(one))
	require.NoError(t, property.Publish(two))

	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	all, err := property.Reports(f)
	require.NoError(t, err)
	require.Equal(t, []property.Report{one, two}, all)
}

func TestBudget(t *testing.T) {
	t.Setenv(property.ScaleVariable, "")
	require.Equal(t, 10, property.Budget(10))
	t.Setenv(property.ScaleVariable, "2.5")
	require.Equal(t, 25, property.Budget(10))
	require.Equal(t, 5*time.Second, property.Budget(2*time.Second))
	t.Setenv(property.ScaleVariable, "0.01")
	require.Equal(t, 1, property.Budget(10))
	t.Setenv(property.ScaleVariable, "many")
	require.Panics(t, func() { property.Budget(10) })
}

func TestFirstSeed(t *testing.T) {
	t.Setenv(property.SeedVariable, "")
	require.EqualValues(t, 1, property.FirstSeed())
	t.Setenv(property.SeedVariable, "77")
	require.EqualValues(t, 77, property.FirstSeed())
	t.Setenv(property.SeedVariable, "x")
	require.Panics(t, func() { property.FirstSeed() })
}
