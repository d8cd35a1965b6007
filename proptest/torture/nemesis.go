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
// each before the next. It reports them to the checker.
type nemesis struct {
	*checker
	tracer string // path of strace, or empty
}

// fault is one kind of fault, with its weight.
type fault struct {
	weight int
	do     func(ctx context.Context, r *rand.Rand)
}

func newNemesis(c *checker) *nemesis {
	tracer, err := exec.LookPath("strace")
	if err != nil {
		c.world.without = append(c.world.without, "no disk errors: strace is missing (Debian: apt-get install strace)")
	}
	return &nemesis{c, tracer}
}

// random injects faults into all parts at random. It continues beyond the duration until
// enough migrations are complete.
func (n *nemesis) random(ctx context.Context) {
	set := func() error { return n.migrator.set(ctx, n.migrator.mode, false) }
	if err := retry(ctx, startLimit, set); err != nil {
		if ctx.Err() == nil {
			n.fail(fmt.Errorf("set the policy for %q: %w", switchedPrefix, err))
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
	n.inject(ctx, part{1500 * time.Millisecond, n.memberFaults()}, part{1200 * time.Millisecond, n.redisFaults()})
	parts.Wait()
}

// part is a part of the system with its faults.
type part struct {
	pause  time.Duration // average time between two faults
	faults []fault
}

// inject injects faults into workers, the storage and other parts until ctx ends.
func (n *nemesis) inject(ctx context.Context, others ...part) {
	half := len(n.world.workers) / 2
	parts := append([]part{
		{1200 * time.Millisecond, n.workerFaults(n.world.workers[:half])},
		{1200 * time.Millisecond, n.workerFaults(n.world.workers[half:])},
		{5 * time.Second, n.storageFaults()},
	}, others...)
	var running sync.WaitGroup
	for i, part := range parts {
		r := rand.New(rand.NewPCG(n.world.config.Seed, uint64(i)))
		running.Go(func() {
			for wait(ctx, time.Duration(r.Int64N(int64(2*part.pause)))) {
				choose(part.faults, r).do(ctx, r)
			}
		})
	}
	running.Wait()
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
func (c *checker) report(who, note string) {
	c.happened(property.Event{Kind: property.Fault, At: c.world.now(), Who: who, Note: note})
}

// try reports whether a fault could be injected or repaired. If not, it ends the run.
func (c *checker) try(err error) bool {
	if err != nil {
		c.fail(err)
	}
	return err == nil
}

// pause stops a process and resumes it after a while, or when ctx ends.
func (n *nemesis) pause(ctx context.Context, who, note string, length time.Duration, stop, resume func()) {
	n.happened(property.Event{Kind: property.Paused, At: n.world.now(), Who: who, Note: note})
	stop()
	wait(ctx, length)
	n.happened(property.Event{Kind: property.Resumed, At: n.world.now(), Who: who})
	resume()
}
