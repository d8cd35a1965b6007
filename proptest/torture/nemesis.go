//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"

	"github.com/leased-project/leased/proptest/property"
)

// nemesis injects faults into each part of the system, one after the other, and repairs
// each before the next.
type nemesis struct {
	world    *world
	migrator *migrator
	grants   *grants
	emit     func(property.Event)
	broken   func(string)      // adds a violation
	wrong    func(error)       // ends the run because a fault could not be injected
	holds    func(string) bool // whether a worker holds a lock
	tracer   string            // path of strace, or empty
}

// fault is one kind of fault, with its weight.
type fault struct {
	weight int
	do     func(ctx context.Context, r *rand.Rand)
}

func newNemesis(w *world, c *checker) *nemesis {
	n := &nemesis{world: w, migrator: newMigrator(w, c), grants: &c.grants, emit: c.happened, broken: c.violate, wrong: c.fail, holds: c.holding}
	tracer, err := exec.LookPath("strace")
	if err != nil {
		w.without = append(w.without, "no disk errors: strace is missing (Debian: apt-get install strace)")
	}
	n.tracer = tracer
	return n
}

// run injects the faults of the scenario until ctx ends. The caller repairs the last ones.
func (n *nemesis) run(ctx context.Context) {
	switch n.world.config.Scenario {
	case Emptied:
		n.emptyRepeatedly(ctx)
	case Leaderless:
		n.leaderless(ctx)
	default:
		n.random(ctx)
	}
}

// random injects faults into all parts at random. It continues beyond the duration until
// enough migrations are complete.
func (n *nemesis) random(ctx context.Context) {
	if err := n.migrator.prepare(ctx); err != nil {
		if ctx.Err() == nil {
			n.wrong(fmt.Errorf("set the policy for %q: %w", switchedPrefix, err))
		}
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { n.migrator.run(ctx) })
	parts.Go(func() {
		wait(ctx, n.world.config.Duration)
		for n.migrator.figures().Done < n.world.config.Switches && wait(ctx, 50*time.Millisecond) {
		}
		stop()
	})
	half := len(n.world.workers) / 2
	for i, part := range []struct {
		pause  time.Duration // average time between two faults
		faults []fault
	}{
		{1200 * time.Millisecond, n.workerFaults(n.world.workers[:half])},
		{1200 * time.Millisecond, n.workerFaults(n.world.workers[half:])},
		{1500 * time.Millisecond, n.memberFaults()},
		{1200 * time.Millisecond, n.redisFaults()},
		{5 * time.Second, n.storageFaults()},
	} {
		r := rand.New(rand.NewPCG(n.world.config.Seed, uint64(i)))
		parts.Go(func() {
			for wait(ctx, time.Duration(r.Int64N(int64(2*part.pause)))) {
				choose(part.faults, r).do(ctx, r)
			}
		})
	}
	parts.Wait()
}

func choose(all []fault, r *rand.Rand) fault {
	sum := 0
	for _, t := range all {
		sum += t.weight
	}
	k := r.IntN(sum)
	for _, t := range all {
		if k -= t.weight; k < 0 {
			return t
		}
	}
	return all[0]
}

// some returns a random duration between least and most.
func some(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// report records a fault.
func (n *nemesis) report(who, note string) {
	n.emit(property.Event{Kind: property.Fault, At: n.world.now(), Who: who, Note: note})
}

// paused records that a process is paused.
func (n *nemesis) paused(who, note string) {
	n.emit(property.Event{Kind: property.Paused, At: n.world.now(), Who: who, Note: note})
}

func (n *nemesis) resumed(who string) {
	n.emit(property.Event{Kind: property.Resumed, At: n.world.now(), Who: who})
}
