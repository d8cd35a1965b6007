package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/property"
)

// just is a round that has what every row must have, and no more.
func just() []property.Report {
	var all []property.Report
	for _, row := range rows {
		all = append(all, property.Report{Setting: row.setting, Runs: row.runs, Operations: row.operations, Faults: map[string]int{"pause": row.faults}})
	}
	return all
}

// A test that was skipped publishes nothing, and one that found nothing to do
// publishes little. The rest of a round must not make up for either.
func TestEveryRowIsExpected(t *testing.T) {
	require.NoError(t, complete(just(), 1))
	for i, row := range rows {
		require.ErrorContains(t, complete(slices.Delete(just(), i, i+1), 1), row.setting+": nothing was published")

		thin := just()
		thin[i].Runs--
		require.ErrorContains(t, complete(thin, 1), row.setting+": ")
		require.ErrorContains(t, complete(thin, 1), " runs, less than")

		thin = just()
		thin[i].Operations--
		require.ErrorContains(t, complete(thin, 1), " operations, less than")

		thin = just()
		thin[i].Faults["pause"]--
		require.ErrorContains(t, complete(thin, 1), " faults, less than")
		require.NoError(t, complete(thin, 0.5), "half a round has half of it")
	}
}

// The same of what only counts: states do not make up for steps.
func TestEveryCountIsExpected(t *testing.T) {
	s := setting{name: "counting", folder: "./counting", counts: map[string]int{"states": 100, "steps": 50}}
	require.NoError(t, s.counted("x: 60 states\nx: 40 states\nx: 50 steps in 3 walks\n", 1))
	require.NoError(t, s.counted("50 states, 25 steps", 0.5))
	require.ErrorContains(t, s.counted("1000 states", 1), "0 steps, less than 50")
	require.ErrorContains(t, s.counted("99 states, 50 steps", 1), "99 states, less than 100")
	require.ErrorContains(t, s.counted("no test", 1), "states")
}

// A round in which nothing was done is a failure.
func TestARoundMustHaveItsRows(t *testing.T) {
	before := settings
	t.Cleanup(func() { settings = before })
	settings = nil
	_, err := round(t.Context(), 1, 1)
	for _, row := range rows {
		require.ErrorContains(t, err, row.setting+": nothing was published")
	}
}
