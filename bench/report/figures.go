package main

import (
	"fmt"

	"github.com/leased-project/leased/bench/results"
)

// figure is how a figure is shown.
type figure struct {
	label string
	// more is set if a larger value is better.
	more   bool
	format func(float64) string
}

// figures are all figures.
var figures = map[string]figure{
	results.Rate:                {"pairs/s", true, results.Number},
	results.P50:                 {"acquire p50, ms", false, results.Number},
	results.P99:                 {"acquire p99, ms", false, results.Number},
	results.PairP50:             {"pair p50, ms", false, results.Number},
	results.PairP99:             {"pair p99, ms", false, results.Number},
	results.CPU:                 {"CPU ms per 1,000 pairs", false, results.Number},
	results.CPUServers:          {"of which servers", false, results.Number},
	results.Fairness:            {"most/fewest grants of a worker", false, results.Number},
	results.Errors:              {"errors", false, results.Number},
	results.TakeSeconds:         {"time to take all, s", false, results.Number},
	results.MemoryLeader:        {"bytes per lease, leader", false, results.Number},
	results.MemoryFollower:      {"bytes per lease, follower", false, results.Number},
	results.FailoverMillis:      {"to the first grant, ms", false, results.Number},
	results.LastMillis:          {"to the last worker's grant, ms", false, results.Number},
	results.MemoryTotalLeader:   {"memory of the leader", false, mebibytes},
	results.MemoryTotalFollower: {"memory of a follower", false, mebibytes},
	results.EntryOperations:     {"operations per log entry", true, results.Number},
	results.PauseMillis:         {"longest time without a grant while the snapshot is taken, ms", false, results.Number},
	results.QuietMillis:         {"the same without a snapshot, ms", false, results.Number},
	results.SnapshotMillis:      {"time to take it, ms", false, results.Number},
	results.SnapshotBytes:       {"size", false, mebibytes},
}

// times prints a ratio.
func times(v float64) string { return results.Number(v) + "x" }

// percent prints a share with one decimal.
func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }

// mebibytes prints a number of bytes in MiB.
func mebibytes(v float64) string { return results.Number(v/(1<<20)) + " MiB" }
