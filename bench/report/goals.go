package main

import (
	"fmt"
	"slices"

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

// Cases that several goals have.
var (
	one, few, more, many  = params{"workers": 1}, params{"workers": 16}, params{"workers": 64}, params{"workers": 256}
	fewWaiters            = params{"workers": 16, "processes": 1}
	manyWaiters           = params{"workers": 128, "processes": 1}
	manyProcesses         = params{"workers": 128, "processes": 8}
	manyClients           = params{"workers": 256, "clients": 256}
	leases, millionLeases = params{"leases": 100_000}, params{"leases": 1_000_000}
	least, most           = true, false
)

// goals are all goals, in the order of the table.
var goals = []goal{
	{"own-etcd", "correctness, own locks, 256 workers, pairs/s", "W1", many, leased, results.Rate, etcd, least, 10},
	{"own-zookeeper", "correctness, own locks, 256 workers, pairs/s", "W1", many, leased, results.Rate, zookeeper,
		least, 7},
	{"own-postgres", "correctness, own locks, 256 workers, pairs/s", "W1", many, leased, results.Rate, advisory,
		least, 1},
	{"cpu-etcd", "correctness, own locks, 256 workers, CPU of servers and client", "W1", many, leased, results.CPU,
		etcd, most, 0.09},
	{"clients-etcd", "correctness, own locks, 256 clients of one worker each, pairs/s", "W6", manyClients, leased,
		results.Rate, etcd, least, 5},
	{"own-64", "correctness, own locks, 64 workers, pairs/s", "W1", more, leased, results.Rate, etcd, least, 9},
	{"own-16", "correctness, own locks, 16 workers, pairs/s", "W1", few, leased, results.Rate, etcd, least, 6},
	{"one-etcd", "correctness, one worker, acquire p50", "W1", one, leased, results.P50, etcd, most, 0.4},
	{"one-zookeeper", "correctness, one worker, acquire p50", "W1", one, leased, results.P50, zookeeper, most, 0.7},
	{"handoff-16-etcd", "correctness, one lock, 16 workers, handoffs/s", "W2", fewWaiters, leased, results.Rate,
		etcd, least, 8},
	{"handoff-16-zookeeper", "correctness, one lock, 16 workers, handoffs/s", "W2", fewWaiters, leased,
		results.Rate, zookeeper, least, 4},
	{"handoff-128-etcd", "correctness, one lock, 128 workers, handoffs/s", "W2", manyWaiters, leased, results.Rate,
		etcd, least, 8},
	{"handoff-128-zookeeper", "correctness, one lock, 128 workers, handoffs/s", "W2", manyWaiters, leased,
		results.Rate, zookeeper, least, 3},
	{"fair-16", "correctness, one lock, 16 workers, most/fewest grants of a worker", "W2", fewWaiters, leased,
		results.Fairness, "", most, 1.1},
	{"fair-128", "correctness, one lock, 128 workers, most/fewest grants of a worker", "W2", manyWaiters, leased,
		results.Fairness, "", most, 1.1},
	{"failover-first", "leader killed, 16 workers, time to the next grant", "W4", few, leased,
		results.FailoverMillis, etcd, most, 0.1},
	{"failover-last", "leader killed, 16 workers, time until every worker has a grant", "W4", few, leased,
		results.LastMillis, etcd, most, 0.1},
	{"take-etcd", "100,000 leases with 64 workers, time to take them", "W3", leases, leased, results.TakeSeconds,
		etcd, most, 0.13},
	{"memory-leader", "100,000 leases, memory of the leader per lease", "W3", leases, leased, results.MemoryLeader,
		etcd, most, 0.8},
	{"memory-follower", "100,000 leases, memory of a follower per lease", "W3", leases, leased,
		results.MemoryFollower, etcd, most, 0.6},
	{"json-etcd", "JSON API, 64 connections, pairs/s", "W7", more, jsonAPI, results.Rate, etcdJSON, least, 4},
	{"json-cpu", "JSON API, 64 connections, microseconds of CPU of servers and client per pair", "W7", more,
		jsonAPI, results.CPU, "", most, 120},
	{"efficiency-256", "efficiency, own locks, 256 workers, pairs/s", "W1", many, efficiency, results.Rate,
		redsyncFive, least, 5},
	{"efficiency-64", "efficiency, own locks, 64 workers, pairs/s", "W1", more, efficiency, results.Rate,
		redsyncFive, least, 4.5},
	{"efficiency-cpu", "efficiency, own locks, 256 workers, CPU of servers and client", "W1", many, efficiency,
		results.CPU, redsyncFive, most, 0.2},
	{"efficiency-one", "efficiency, one worker, acquire p50", "W1", one, efficiency, results.P50, redsyncFive, most,
		0.75},
	{"efficiency-handoff", "efficiency, one lock, 128 workers in 8 processes, handoffs/s", "W2", manyProcesses,
		efficiency, results.Rate, redsyncFive, least, 5},
	{"efficiency-single", "efficiency on one Redis, 64 workers, pairs/s", "nodes", params{"nodes": 1}, efficiency,
		results.Rate, redsync, least, 1.3},
	{"member-256", "efficiency through a member, own locks, 256 workers, pairs/s", "W1", many, member, results.Rate,
		redsyncFive, least, 3.5},
	{"member-one", "efficiency through a member, one worker, acquire p50", "W1", one, member, results.P50,
		redsyncFive, most, 1.8},
	{"postgres-16", "locks in PostgreSQL, own locks, 16 workers, pairs/s", "W1", few, pgEngine, results.Rate, row,
		least, 1},
	{"postgres-256", "locks in PostgreSQL, own locks, 256 workers, pairs/s", "W1", many, pgEngine, results.Rate,
		row, least, 1},
	{"postgres-handoff-16", "locks in PostgreSQL, one lock, 16 workers, handoffs/s", "W2", fewWaiters, pgEngine,
		results.Rate, row, least, 20},
	{"postgres-handoff-128", "locks in PostgreSQL, one lock, 128 workers, handoffs/s", "W2", manyWaiters, pgEngine,
		results.Rate, row, least, 20},
	{"gate-latency", "gated write in PostgreSQL, 16 writers, p50", "W5", few, gated, results.PairP50, plain, most,
		1.25},
	{"gate-rate", "gated write in PostgreSQL, 16 writers, writes/s", "W5", few, gated, results.Rate, plain, least,
		0.8},
	{"snapshot", "1,000,000 leases, longest time without a grant while a snapshot is taken, ms", "snapshot",
		millionLeases, leased, results.PauseMillis, "", most, 50},
}

// headlines are the goals whose ratios begin the page.
var headlines = []string{"own-etcd", "own-zookeeper", "cpu-etcd", "clients-etcd", "one-etcd", "one-zookeeper",
	"handoff-128-etcd", "handoff-128-zookeeper", "failover-first", "memory-leader", "json-etcd", "own-postgres",
	"efficiency-256", "efficiency-one", "efficiency-handoff", "postgres-256", "gate-latency"}

// headlineTable returns the ratios that say most.
func (s *summary) headlineTable() string {
	var rows [][]string
	for _, g := range goals {
		got, o := s.measure(g)
		if o == missing || !slices.Contains(headlines, g.name) {
			continue
		}
		better := "less is better"
		if g.least {
			better = "more is better"
		}
		rows = append(rows, []string{g.text, label(g.peer), got.Format(times), better})
	}
	return markdown("work | peer | leased to it | ", rows)
}

// measure returns the ratio, or the value, and whether it reaches the bound.
func (s *summary) measure(g goal) (results.Spread, outcome) {
	ours := s.values(g.work, g.ours, g.what, g.at)
	got := ours.all()
	if g.peer != "" {
		got = ratio(ours, s.values(g.work, g.peer, g.what, g.at))
	}
	switch {
	case got.Count == 0:
		return got, missing
	case g.least && got.Median >= g.bound, !g.least && got.Median <= g.bound:
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
		format, unit, against := results.Number, "", ""
		if g.peer != "" {
			format, unit, against = times, "x", " "+label(g.peer)
		}
		word := "at most "
		if g.least {
			word = "at least "
		}
		bound := fmt.Sprintf("%s%g%s%s", word, g.bound, unit, against)
		rows = append(rows, []string{g.text, bound, got.Format(format), s.verdict(g, o)})
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
