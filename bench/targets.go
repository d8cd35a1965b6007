package main

import (
	"slices"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/etcd"
	"github.com/leased-project/leased/bench/peers/leased"
)

// targets returns the table of the services, in the order of measurement within a round.
// Program is that of leased, or empty to build it.
func targets(program string) []peers.Kind {
	return slices.Concat(
		leased.Kinds(program),
		[]peers.Kind{etcd.Kind()},
	)
}
