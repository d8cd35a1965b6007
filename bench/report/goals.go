package main

import (
	"fmt"

	"github.com/leased-project/leased/bench/results"
)

// goal is a row of the table of goals: a ratio to a peer, or a value if there is no peer, with the bound that
// it must reach.
type goal struct {
	name  string // in the template
	text  string
	work  string
	at    params
	ours  string
	what  string // the figure
	peer  string
	least bool // the bound is the least; otherwise the most
	bound float64
}

// outcome of a goal.
type outcome int

// The outcomes.
const (
	missing outcome = iota
	reached
	missed
)

// goals are all goals, in the order of the table.
var goals = []goal{
	{"own-etcd", "correctness, own locks, 256 workers, pairs/s", "W1", params{"workers": 256}, leased, results.Rate, etcd,
		true, 10},
	{"own-zookeeper", "the same", "W1", params{"workers": 256}, leased, results.Rate, zookeeper, true, 7},
	{"own-postgres", "the same", "W1", params{"workers": 256}, leased, results.Rate, advisory, true, 1},
	{"own-16", "correctness, own locks, 16 workers, pairs/s", "W1", params{"workers": 16}, leased, results.Rate, etcd,
		true, 6},
	{"one-etcd", "correctness, one worker, acquire p50", "W1", params{"workers": 1}, leased, results.P50, etcd, false,
		0.4},
	{"one-zookeeper", "the same", "W1", params{"workers": 1}, leased, results.P50, zookeeper, false, 0.7},
	{"handoff-16-etcd", "correctness, one lock, 16 workers, handoffs/s", "W2", params{"workers": 16, "processes": 1},
		leased, results.Rate, etcd, true, 8},
	{"handoff-16-zookeeper", "the same", "W2", params{"workers": 16, "processes": 1}, leased, results.Rate, zookeeper,
		true, 4},
	{"handoff-128-etcd", "correctness, one lock, 128 workers, handoffs/s", "W2", params{"workers": 128, "processes": 1},
		leased, results.Rate, etcd, true, 8},
	{"handoff-128-zookeeper", "the same", "W2", params{"workers": 128, "processes": 1}, leased, results.Rate, zookeeper,
		true, 4},
	{"fair-16", "correctness, one lock, 16 workers, most/fewest grants of a worker", "W2",
		params{"workers": 16, "processes": 1}, leased, results.Fairness, "", false, 1.1},
	{"fair-128", "the same, 128 workers", "W2", params{"workers": 128, "processes": 1}, leased, results.Fairness, "",
		false, 1.1},
	{"cpu-etcd", "correctness, own locks, 256 workers, CPU of servers and client", "W1", params{"workers": 256}, leased,
		results.CPU, etcd, false, 0.1},
	{"failover-first", "leader killed, 16 workers, time to the next grant", "W4", params{"workers": 16}, leased,
		results.FailoverMillis, etcd, false, 0.5},
	{"failover-last", "the same, time to the next grant of the last worker", "W4", params{"workers": 16}, leased,
		results.LastMillis, etcd, false, 0.5},
	{"take-etcd", "100,000 leases with 64 workers, time to take them", "W3", params{"leases": 100_000}, leased,
		results.TakeSeconds, etcd, false, 0.1},
	{"memory-leader", "the same, memory of the leader per lease", "W3", params{"leases": 100_000}, leased,
		results.MemoryLeader, etcd, false, 0.6},
	{"memory-follower", "the same, memory of a follower per lease", "W3", params{"leases": 100_000}, leased,
		results.MemoryFollower, etcd, false, 0.6},
	{"efficiency-256", "efficiency, own locks, 256 workers, pairs/s", "W1", params{"workers": 256}, efficiency,
		results.Rate, redsyncFive, true, 6},
	{"efficiency-64", "efficiency, own locks, 64 workers, pairs/s", "W1", params{"workers": 64}, efficiency, results.Rate,
		redsyncFive, true, 4},
	{"efficiency-cpu", "efficiency, own locks, 256 workers, CPU of servers and client", "W1", params{"workers": 256},
		efficiency, results.CPU, redsyncFive, false, 0.25},
	{"efficiency-one", "efficiency, one worker, acquire p50", "W1", params{"workers": 1}, efficiency, results.P50,
		redsyncFive, false, 0.6},
	{"efficiency-handoff", "efficiency, one lock, 128 workers in 8 processes, handoffs/s", "W2",
		params{"workers": 128, "processes": 8}, efficiency, results.Rate, redsyncFive, true, 5},
	{"member-256", "efficiency through a member, own locks, 256 workers, pairs/s", "W1", params{"workers": 256}, member,
		results.Rate, redsyncFive, true, 4},
	{"member-correctness", "the same", "W1", params{"workers": 256}, member, results.Rate, leased, true, 1.5},
	{"member-one", "efficiency through a member, one worker, acquire p50", "W1", params{"workers": 1}, member, results.P50,
		redsyncFive, false, 1.5},
	{"gate-latency", "gated write in PostgreSQL, 16 writers, p50", "W5", params{"workers": 16}, gated, results.PairP50,
		plain, false, 1.25},
	{"gate-rate", "the same, writes/s", "W5", params{"workers": 16}, gated, results.Rate, plain, true, 0.8},
	{"snapshot", "1,000,000 leases, longest time without a grant while a snapshot is taken, ms", "snapshot",
		params{"leases": 1_000_000}, leased, results.PauseMillis, "", false, 50},
}

// measure returns the ratio, or the value, and whether it reaches the bound.
func (s *summary) measure(g goal) (spread, outcome) {
	ours := s.values(g.work, g.ours, g.what, g.at)
	got := ours.all()
	if g.peer != "" {
		got = ratio(ours, s.values(g.work, g.peer, g.what, g.at))
	}
	switch {
	case got.count == 0:
		return got, missing
	case g.least && got.median >= g.bound, !g.least && got.median <= g.bound:
		return got, reached
	default:
		return got, missed
	}
}

// goalTable returns the table of goals, and how many are reached.
func (s *summary) goalTable() string {
	var rows [][]string
	counts := map[outcome]int{}
	for _, g := range goals {
		got, o := s.measure(g)
		counts[o]++
		format, unit, against := number, "", ""
		if g.peer != "" {
			format, unit, against = times, "x", " "+label(g.peer)
		}
		word := "at most "
		if g.least {
			word = "at least "
		}
		bound := fmt.Sprintf("%s%g%s%s", word, g.bound, unit, against)
		rows = append(rows, []string{g.text, bound, got.format(format), s.verdict(g, o)})
	}
	return markdown("work | goal | measured | reached", rows) +
		fmt.Sprintf("\n%d of %d goals are reached, %d are not, and %d were not measured.\n",
			counts[reached], len(goals), counts[missed], counts[missing])
}

// verdict describes an outcome.
func (s *summary) verdict(g goal, o outcome) string {
	switch o {
	case reached:
		return "yes"
	case missed:
		return "**no**"
	}
	for _, target := range []string{g.ours, g.peer} {
		if target != "" && len(s.values(g.work, target, g.what, g.at)) == 0 {
			return "no figure of " + label(target)
		}
	}
	return "no common round"
}
