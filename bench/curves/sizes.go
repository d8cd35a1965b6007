package main

import (
	"context"
	"errors"
	"time"

	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// workers is the number of workers of curves over another size.
const workers = 64

// measureWaiters measures handoffs of one lock over the number of workers that want it.
func measureWaiters(ctx context.Context, b *bench) error {
	c, err := b.startCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Stop()
	for _, waiters := range b.upTo(1, 10, 100, 1000, 10_000) {
		for round := 1; round <= b.rounds; round++ {
			warm := warmUp + time.Duration(waiters)*200*time.Microsecond // until all of them wait
			figures, steal, err := b.measure(ctx, c, load.Contended{Workers: waiters, Clients: 1}, warm,
				func(figures map[string]float64) error { return c.memory(ctx, figures) })
			if err != nil {
				return err
			}
			b.add("waiters", leased.Correctness, map[string]int{"waiters": waiters}, round, figures, steal)
		}
	}
	return nil
}

// measureBatch measures the operations per log entry over the number of workers.
func measureBatch(ctx context.Context, b *bench) error {
	c, err := b.startCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Stop()
	for _, workers := range b.upTo(1, 4, 16, 64, 256, 1024) {
		for round := 1; round <= b.rounds; round++ {
			leader, err := c.leader(ctx)
			if err != nil {
				return err
			}
			before, err := c.metrics(ctx, leader)
			if err != nil {
				return err
			}
			figures, steal, err := b.measure(ctx, c, load.Own{Workers: workers, Clients: 1}, warmUp, nil)
			if err != nil {
				return err
			}
			after, err := c.metrics(ctx, leader)
			if err != nil {
				return err
			}
			const metric = "leased_raft_entry_operations"
			entries := after[metric+"_count"] - before[metric+"_count"]
			if entries <= 0 {
				return errors.New("the leader has changed, or has no metric " + metric)
			}
			figures[results.EntryOperations] = (after[metric+"_sum"] - before[metric+"_sum"]) / entries
			b.add("batch", leased.Correctness, map[string]int{"workers": workers}, round, figures, steal)
		}
	}
	return nil
}

// measureSessions measures the rate and the memory over the number of sessions, each of a client with its own
// connection and a lease.
func measureSessions(ctx context.Context, b *bench) error {
	return b.grow(ctx, b.upTo(1, 10, 100, 1000, 10_000), func(size int) order { return order{Sessions: size, Leases: size} },
		func(c *cluster, size, round int) error { return b.measureOwn(ctx, c, "sessions", size, round) })
}

// measureLeases measures the rate and the memory over the number of leases of one session, and the pause that a snapshot
// of them causes.
func measureLeases(ctx context.Context, b *bench) error {
	// The leases of the workers count too: the members allow a user a million by default.
	return b.grow(ctx, b.upTo(1000, 10_000, 100_000, 1_000_000), func(size int) order { return order{Sessions: 1, Leases: size - workers} },
		func(c *cluster, size, round int) error {
			if err := b.measureOwn(ctx, c, "leases", size, round); err != nil {
				return err
			}
			return b.measurePause(ctx, c, size, round)
		})
}

// grow measures a cluster that holds more and more.
func (b *bench) grow(ctx context.Context, sizes []int, orderOf func(size int) order, measure func(c *cluster, size, round int) error) error {
	c, err := b.startCluster(ctx)
	if err != nil {
		return err
	}
	defer c.Stop()
	h, err := c.startHolder()
	if err != nil {
		return err
	}
	defer h.stop()
	for _, size := range sizes {
		b.line.Show("holding " + describe(map[string]float64{"leases": float64(orderOf(size).Leases), "sessions": float64(orderOf(size).Sessions)}))
		if err := h.hold(orderOf(size)); err != nil {
			return err
		}
		for round := 1; round <= b.rounds; round++ {
			if err := measure(c, size, round); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureOwn measures workers with locks of their own.
func (b *bench) measureOwn(ctx context.Context, c *cluster, work string, size, round int) error {
	figures, steal, err := b.measure(ctx, c, load.Own{Workers: workers, Clients: 1}, warmUp,
		func(figures map[string]float64) error { return c.memory(ctx, figures) })
	if err != nil {
		return err
	}
	b.add(work, leased.Correctness, map[string]int{work: size}, round, figures, steal)
	return nil
}
