package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/leased-project/leased/proptest/property"
)

// least is the minimum that a setting must check in a round. The sums alone would not show
// a test that checks nothing, since the simulator contributes most of them.
type least struct {
	setting                  string
	runs, operations, faults int
}

// rows are about a third of the figures of a round, so that they hold for any seed. Change
// them with the budgets of the tests.
var rows = []least{
	{"simulator, correctness mode", 60, 400_000, 4_000},
	{"simulator, standalone fleet", 60, 350_000, 3_600},
	{"simulator, service with both modes", 60, 350_000, 4_000},
	{"simulator, drawn faults", 33, 60_000, 140},
	{"virtual time, correctness", 66, 5_000, 500},
	{"virtual time, correctness, sound clients", 66, 5_500, 400},
	{"virtual time, efficiency", 3, 120, 15},
}

// complete reports the rows of a round that are missing or too small. scale is that of the
// round.
func complete(reports []property.Report, scale float64) error {
	var missed []error
	all := merged(reports)
	for _, row := range rows {
		i := slices.IndexFunc(all, func(r property.Report) bool { return r.Setting == row.setting })
		if i < 0 {
			missed = append(missed, fmt.Errorf("%s: no report was published; was its test skipped or renamed?", row.setting))
			continue
		}
		wanted := func(least int) int { return int(float64(least) * scale) }
		missed = append(missed, fewer(row.setting, all[i].Runs, "runs", wanted(row.runs)),
			fewer(row.setting, all[i].Operations, "operations", wanted(row.operations)),
			fewer(row.setting, all[i].Injected(), "faults", wanted(row.faults)))
	}
	return errors.Join(missed...)
}

// fewer returns an error if a figure is below its minimum.
func fewer(where string, has int, unit string, least int) error {
	if has >= least {
		return nil
	}
	return fmt.Errorf("%s: %d %s, less than %d", where, has, unit, least)
}
