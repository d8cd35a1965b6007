//go:build linux

package torture

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"

	"github.com/leased-project/leased/proptest/promise"
)

// nemesis breaks things, one after the other in each part of the world, and puts
// each right again before the next.
type nemesis struct {
	world  *world
	tell   func(promise.Event)
	wrong  func(error)       // what it could not do, which ends the run
	holds  func(string) bool // whether a worker holds a lock
	tracer string            // strace, if it is there
}

// trouble is one thing to do, and how often among the others.
type trouble struct {
	weight int
	do     func(ctx context.Context, r *rand.Rand)
}

func newNemesis(w *world, c *court) *nemesis {
	n := &nemesis{world: w, tell: c.happened, wrong: c.fail, holds: c.holding}
	tracer, err := exec.LookPath("strace")
	if err != nil {
		w.without = append(w.without, "no disk errors: strace is missing (Debian: apt-get install strace)")
	}
	n.tracer = tracer
	return n
}

// run breaks things until ctx ends, and leaves it to heal to put all right.
func (n *nemesis) run(ctx context.Context) {
	var parts sync.WaitGroup
	half := len(n.world.workers) / 2
	for i, part := range []struct {
		pause    time.Duration // between two troubles, on average
		troubles []trouble
	}{
		{1200 * time.Millisecond, n.workerTroubles(n.world.workers[:half])},
		{1200 * time.Millisecond, n.workerTroubles(n.world.workers[half:])},
		{1500 * time.Millisecond, n.memberTroubles()},
		{1200 * time.Millisecond, n.redisTroubles()},
		{5 * time.Second, n.storageTroubles()},
	} {
		r := rand.New(rand.NewPCG(n.world.config.Seed, uint64(i)))
		parts.Go(func() {
			for wait(ctx, time.Duration(r.Int64N(int64(2*part.pause)))) {
				choose(part.troubles, r).do(ctx, r)
			}
		})
	}
	parts.Wait()
}

func choose(all []trouble, r *rand.Rand) trouble {
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

// some is a time between two others.
func some(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// fault tells what was broken.
func (n *nemesis) fault(who, note string) {
	n.tell(promise.Event{Kind: promise.Fault, At: n.world.now(), Who: who, Note: note})
}

// paused tells that somebody stands still.
func (n *nemesis) paused(who, note string) {
	n.tell(promise.Event{Kind: promise.Paused, At: n.world.now(), Who: who, Note: note})
}

func (n *nemesis) resumed(who string) {
	n.tell(promise.Event{Kind: promise.Resumed, At: n.world.now(), Who: who})
}
