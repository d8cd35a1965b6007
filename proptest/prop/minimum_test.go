package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/property"
)

// just returns a round with the minimum of every row.
func just() []property.Report {
	var all []property.Report
	for _, row := range rows {
		all = append(all, property.Report{Setting: row.setting, Runs: row.runs, Operations: row.operations,
			Faults: map[string]int{"pause": row.faults}})
	}
	return all
}

// A skipped test publishes no report. The other settings must not compensate for it.
func TestEveryRowIsExpected(t *testing.T) {
	require.NoError(t, complete(just(), 1))
	for i, row := range rows {
		require.ErrorContains(t, complete(slices.Delete(just(), i, i+1), 1), row.setting+": no report was published")

		small := just()
		small[i].Runs--
		require.ErrorContains(t, complete(small, 1), row.setting+": ")
		require.ErrorContains(t, complete(small, 1), " runs, less than")

		small = just()
		small[i].Operations--
		require.ErrorContains(t, complete(small, 1), " operations, less than")

		small = just()
		small[i].Faults["pause"]--
		require.ErrorContains(t, complete(small, 1), " faults, less than")
		require.NoError(t, complete(small, 0.5), "half a round needs half of the minimum")
	}
}

// The counts of a setting do not compensate for each other.
func TestEveryCountIsExpected(t *testing.T) {
	s := setting{name: "counting", folder: "./counting", counts: map[string]int{"states": 100, "steps": 50}}
	require.NoError(t, s.counted("x: 60 states\nx: 40 states\nx: 50 steps in 3 walks\n", 1))
	require.NoError(t, s.counted("50 states, 25 steps", 0.5))
	require.ErrorContains(t, s.counted("1000 states", 1), "0 steps, less than 50")
	require.ErrorContains(t, s.counted("99 states, 50 steps", 1), "99 states, less than 100")
	require.ErrorContains(t, s.counted("no test", 1), "states")
}

// A round without reports fails.
func TestRoundMustHaveItsRows(t *testing.T) {
	before := settings
	t.Cleanup(func() { settings = before })
	settings = nil
	_, err := round(t.Context(), 1, 1)
	for _, row := range rows {
		require.ErrorContains(t, err, row.setting+": no report was published")
	}
}
