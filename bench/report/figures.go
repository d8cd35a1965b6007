package main

import "github.com/leased-project/leased/bench/results"

// figure is how a figure is shown.
type figure struct {
	label string
	// more is set if a larger value is better.
	more   bool
	format func(float64) string
}

// figures are the known figures; others are shown under their name.
var figures = map[string]figure{
	results.Rate:                {"pairs/s", true, number},
	results.P50:                 {"acquire p50, ms", false, number},
	results.P99:                 {"acquire p99, ms", false, number},
	results.PairP50:             {"pair p50, ms", false, number},
	results.PairP99:             {"pair p99, ms", false, number},
	results.CPU:                 {"CPU ms per 1,000 pairs", false, number},
	results.CPUServers:          {"of which servers", false, number},
	results.Fairness:            {"most/fewest grants of a worker", false, number},
	results.Errors:              {"errors", false, number},
	results.TakeSeconds:         {"time to take all, s", false, number},
	results.MemoryLeader:        {"bytes per lease, leader", false, number},
	results.MemoryFollower:      {"bytes per lease, follower", false, number},
	results.FailoverMillis:      {"to the first grant, ms", false, number},
	results.LastMillis:          {"to the last worker's grant, ms", false, number},
	results.MemoryTotalLeader:   {"memory of the leader", false, mebibytes},
	results.MemoryTotalFollower: {"memory of a follower", false, mebibytes},
	results.EntryOperations:     {"operations per log entry", true, number},
	results.PauseMillis:         {"longest time without a grant while the snapshot is taken, ms", false, number},
	results.QuietMillis:         {"the same without a snapshot, ms", false, number},
	results.SnapshotMillis:      {"time to take it, ms", false, number},
	results.SnapshotBytes:       {"size", false, mebibytes},
}

// figureOf returns how a figure is shown.
func figureOf(name string) figure {
	if f, ok := figures[name]; ok {
		return f
	}
	return figure{label: name, format: number}
}
