package main

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/peers/redis"
	"github.com/leased-project/leased/internal/load"
)

// measureNodes measures efficiency mode and redsync over the number of Redis nodes. Within a round, one is measured
// after the other.
func measureNodes(ctx context.Context, b *bench) error {
	for _, nodes := range []int{1, 3, 5, 7} {
		if err := b.measureFleet(ctx, nodes); err != nil {
			return fmt.Errorf("with %d nodes: %w", nodes, err)
		}
	}
	return nil
}

// measureFleet measures both libraries, each with its own nodes.
func (b *bench) measureFleet(ctx context.Context, nodes int) error {
	var running []peers.Peer
	names := []string{leased.Direct, "redsync"}
	for i, kind := range []peers.Kind{leased.Efficiency(b.program, nodes), redis.Redsync(nodes)} {
		b.line.Show(fmt.Sprintf("starting %s with %d Redis nodes", names[i], nodes))
		peer, err := kind.Start(ctx, b.folder)
		if err != nil {
			return err
		}
		defer peer.Stop()
		running = append(running, peer)
		b.run.Versions[names[i]] = peer.Version()
	}
	for round := 1; round <= b.rounds; round++ {
		for i, peer := range running {
			figures, steal, err := b.measure(ctx, peer, load.Own{Workers: workers, Clients: 1}, warmUp, nil)
			if err != nil {
				return err
			}
			b.add("nodes", names[i], map[string]int{"nodes": nodes}, round, figures, steal)
		}
	}
	return nil
}
