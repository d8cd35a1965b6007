package main

import (
	"slices"
	"strings"

	"github.com/leased-project/leased/bench/plot"
)

// Names of targets.
const (
	leased      = "leased"            // correctness mode
	efficiency  = "leased-efficiency" // the client talks to the Redis nodes
	member      = "leased-member"     // efficiency mode through a member
	etcd        = "etcd"
	zookeeper   = "zookeeper"
	advisory    = "postgres-advisory"
	row         = "postgres-row"
	redsyncOne  = "redsync-1"
	redsyncFive = "redsync-5"
	redislock   = "redislock-1"
	bare        = "redis-bare-5"
	redsync     = "redsync" // with as many nodes as leased
	jsonAPI     = "leased-json"
	consul      = "consul"
	gated       = "gated" // writes under a lease, through the gate
	plain       = "plain" // the same without the gate
	pairGated   = "pair-gated"
	pairPlain   = "pair-plain"
)

// look is the name and the style of a target, the same in all tables and plots.
type look struct {
	name, label string
	style       plot.Style
}

// looks are the known targets in the order of the tables.
var looks = []look{
	{leased, "leased, correctness", plot.Style{Color: plot.Blue, Marker: plot.Circle}},
	{efficiency, "leased, efficiency", plot.Style{Color: plot.Blue, Marker: plot.Circle, Dashed: true}},
	{member, "leased, efficiency via a member", plot.Style{Color: plot.Blue, Marker: plot.Cross, Dashed: true}},
	{jsonAPI, "leased, JSON API", plot.Style{Color: plot.Blue, Marker: plot.Square, Dashed: true}},
	{etcd, "etcd", plot.Style{Color: plot.Vermilion, Marker: plot.Square}},
	{zookeeper, "ZooKeeper", plot.Style{Color: plot.Green, Marker: plot.Triangle}},
	{consul, "Consul", plot.Style{Color: plot.Brown, Marker: plot.Diamond}},
	{advisory, "PostgreSQL advisory lock", plot.Style{Color: plot.Indigo, Marker: plot.Diamond}},
	{row, "PostgreSQL row lease", plot.Style{Color: plot.Indigo, Marker: plot.Cross, Dashed: true}},
	{redsyncOne, "redsync, 1 Redis", plot.Style{Color: plot.Purple, Marker: plot.Triangle, Dashed: true}},
	{redsyncFive, "redsync, 5 Redis", plot.Style{Color: plot.Purple, Marker: plot.Triangle}},
	{redsync, "redsync", plot.Style{Color: plot.Purple, Marker: plot.Triangle}},
	{bare, "baseline: SET and INCR on 5 Redis", plot.Style{Color: plot.Grey, Marker: plot.Cross, Dashed: true}},
	{gated, "gated write", plot.Style{Color: plot.Blue, Marker: plot.Circle}},
	{plain, "plain write", plot.Style{Color: plot.Grey, Marker: plot.Square}},
	{pairGated, "acquire, gated write, release", plot.Style{Color: plot.Blue, Marker: plot.Square}},
	{pairPlain, "acquire, plain write, release", plot.Style{Color: plot.Grey, Marker: plot.Circle}},
	{redislock, "redislock, 1 Redis", plot.Style{Color: plot.Orange, Marker: plot.Square, Dashed: true}},
}

// rank returns the position of a target; unknown ones come last.
func rank(target string) int {
	if i := slices.IndexFunc(looks, func(l look) bool { return l.name == target }); i >= 0 {
		return i
	}
	return len(looks)
}

// lookOf returns the look of a target.
func lookOf(target string) look {
	if i := rank(target); i < len(looks) {
		return looks[i]
	}
	return look{name: target, label: target}
}

// label returns the name of a target for readers.
func label(target string) string { return lookOf(target).label }

// isOurs says whether a target is leased, or a write through one of its gates.
func isOurs(target string) bool {
	return strings.HasPrefix(target, leased) || target == gated || target == pairGated
}

// counterpart returns what a peer is compared with in the tables: efficiency mode for libraries that use Redis, the
// gated write for the plain one, and correctness mode for the others.
func counterpart(peer string) string {
	switch {
	case peer == plain:
		return gated
	case peer == pairPlain:
		return pairGated
	case strings.HasPrefix(peer, "redsync"), strings.HasPrefix(peer, "redislock"), peer == bare:
		return efficiency
	default:
		return leased
	}
}
