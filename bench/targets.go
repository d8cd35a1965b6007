package main

import (
	"slices"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/consul"
	"github.com/leased-project/leased/bench/peers/etcd"
	"github.com/leased-project/leased/bench/peers/guarded"
	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/peers/postgres"
	"github.com/leased-project/leased/bench/peers/redis"
	"github.com/leased-project/leased/bench/peers/zookeeper"
)

// targets returns the table of the services, in the order of measurement within a round.
// Program is that of leased, or empty to build it.
func targets(program string) []peers.Kind {
	ours := leased.Kinds(program)
	return slices.Concat(
		ours,
		[]peers.Kind{etcd.Kind(), zookeeper.Kind(), consul.Kind()},
		redis.Kinds(),
		postgres.Kinds(),
		guarded.Kinds(ours[0]),
	)
}
