package main

import "github.com/leased-project/leased/bench/results"

// workload is how the table and the plot of a workload look.
type workload struct {
	title string
	// by are the parameters whose values make the rows.
	by []string
	// figures are the columns; those that nothing has measured are left out.
	figures []string
	// compared are the figures whose ratios to the peers are columns.
	compared []string
	// x is the parameter of the horizontal axis of the plot. Without it the plot has bars.
	x string
	// drawn are the figures of the panels of the plot.
	drawn []drawn
	// labels are names of figures that differ from the usual ones.
	labels map[string]string
	// gates says that a gate is compared, not a service.
	gates bool
	// single says that only leased is measured.
	single bool
}

// drawn is a panel of a plot.
type drawn struct {
	figure string
	log    bool
	// divide is the unit of the axis, and label its text if it is not that of the figure.
	divide float64
	label  string
	limit  float64
}

const mib = 1 << 20

// handoffs names the rate of one lock.
var handoffs = map[string]string{results.Rate: "handoffs/s"}

// workloads are all workloads, and the curves.
var workloads = map[string]workload{
	"W1": {title: "Own locks: pairs of acquire and release per second", by: []string{"workers"},
		figures:  []string{results.Rate, results.P50, results.P99, results.CPU, results.CPUServers, results.Errors},
		compared: []string{results.Rate, results.P50, results.CPU},
		x:        "workers", drawn: []drawn{{figure: results.Rate, log: true}, {figure: results.P50, log: true}}},
	"W2": {title: "One lock: handoffs per second", by: []string{"workers", "processes"}, labels: handoffs,
		figures:  []string{results.Rate, results.P50, results.P99, results.CPU, results.Fairness, results.Errors},
		compared: []string{results.Rate}, drawn: []drawn{{figure: results.Rate}}},
	"W3": {title: "Many leases held at once", by: []string{"leases", "workers"},
		figures:  []string{results.TakeSeconds, results.MemoryLeader, results.MemoryFollower, results.CPU},
		compared: []string{results.TakeSeconds, results.MemoryLeader, results.MemoryFollower},
		drawn:    []drawn{{figure: results.TakeSeconds}, {figure: results.MemoryLeader}, {figure: results.MemoryFollower}}},
	"W4": {title: "The leader is killed: time without grants", by: []string{"workers"},
		figures:  []string{results.FailoverMillis, results.LastMillis, results.Errors},
		compared: []string{results.FailoverMillis, results.LastMillis},
		drawn:    []drawn{{figure: results.FailoverMillis}, {figure: results.LastMillis}}},
	"W5": {title: "Guarded writes in PostgreSQL", by: []string{"workers"},
		figures: []string{results.Rate, results.PairP50, results.PairP99, results.CPU, results.Errors},
		labels: map[string]string{results.Rate: "writes/s", results.PairP50: "p50, ms", results.PairP99: "p99, ms",
			results.CPU: "CPU ms per 1,000 writes"},
		compared: []string{results.Rate, results.PairP50}, gates: true,
		drawn: []drawn{{figure: results.Rate}, {figure: results.PairP50}}},
	"W6": {title: "A shared session against a session per worker", by: []string{"workers", "clients"},
		figures: []string{results.Rate, results.P50, results.P99, results.CPU, results.CPUServers, results.Errors},
		drawn:   []drawn{{figure: results.Rate}}},
	"W7": {title: "The JSON API", by: []string{"workers"},
		figures:  []string{results.Rate, results.P50, results.P99, results.CPU, results.CPUServers, results.Errors},
		compared: []string{results.Rate}, drawn: []drawn{{figure: results.Rate}, {figure: results.P50}}},

	"leases": {title: "Leases held", by: []string{"leases"}, single: true,
		figures: []string{results.Rate, results.P50, results.P99, results.CPU, results.MemoryTotalLeader,
			results.MemoryTotalFollower},
		x: "leases", drawn: []drawn{{figure: results.Rate},
			{figure: results.MemoryTotalLeader, divide: mib, log: true, label: "memory of the leader, MiB"},
			{figure: results.MemoryTotalFollower, divide: mib, log: true, label: "memory of a follower, MiB"}}},
	"waiters": {title: "Waiters of one lock", by: []string{"waiters"}, single: true, labels: handoffs,
		figures: []string{results.Rate, results.P50, results.CPU, results.Fairness, results.MemoryTotalLeader,
			results.MemoryTotalFollower},
		x: "waiters", drawn: []drawn{{figure: results.Rate}, {figure: results.MemoryTotalLeader, divide: mib,
			label: "memory of the leader, MiB"}}},
	"sessions": {title: "Sessions, each with its own client and connection", by: []string{"sessions"}, single: true,
		figures: []string{results.Rate, results.P50, results.P99, results.CPU, results.MemoryTotalLeader,
			results.MemoryTotalFollower},
		x: "sessions", drawn: []drawn{{figure: results.Rate}, {figure: results.MemoryTotalLeader, divide: mib,
			log: true, label: "memory of the leader, MiB"}}},
	"batch": {title: "Size of the batch", by: []string{"workers"}, single: true,
		figures: []string{results.EntryOperations, results.Rate, results.P50, results.CPU},
		x:       "workers", drawn: []drawn{{figure: results.EntryOperations, log: true}, {figure: results.CPU, log: true}}},
	"nodes": {title: "Redis nodes in efficiency mode", by: []string{"nodes"},
		figures:  []string{results.Rate, results.P50, results.P99, results.CPU, results.CPUServers},
		compared: []string{results.Rate, results.P50, results.CPU},
		x:        "nodes", drawn: []drawn{{figure: results.Rate}, {figure: results.CPU}}},
	"snapshot": {title: "Pause of grants by a snapshot", by: []string{"leases"}, single: true,
		figures: []string{results.PauseMillis, results.QuietMillis, results.SnapshotMillis, results.SnapshotBytes},
		x:       "leases", drawn: []drawn{{figure: results.PauseMillis, log: true, limit: 50,
			label: "longest time without a grant, ms"}, {figure: results.SnapshotMillis, log: true}}},
}

// label returns the name of a figure.
func (w workload) label(figure string) string {
	if text, ok := w.labels[figure]; ok {
		return text
	}
	return figures[figure].label
}

// ours returns what is compared with the peers.
func (w workload) ours() string {
	if w.gates {
		return "gated"
	}
	return "leased"
}
