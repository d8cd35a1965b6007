//go:build linux

package torture

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/promise"
)

const (
	// healLimit is how long after the last fault a lock may take to be granted:
	// one that was taken on a Redis whose clock was ahead stays there for as long,
	// and the machine may be busy.
	healLimit = 2 * time.Minute
)

// worker is a worker's process.
type worker struct {
	spec    Spec
	process *process
}

// begin starts it, as a new life.
func (v *worker) begin() error {
	v.spec.Life++
	v.process.env = []string{v.spec.env()}
	return v.process.start()
}

// Run starts a world, breaks it for a while, and judges what happened. The error
// says that the run itself went wrong; broken promises are in the Result. If ctx
// ends, the Result has what was judged until then.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Progress, "starting %d members, %d Redis masters, PostgreSQL and %d workers; seed %d\n", memberCount, redisCount, c.Workers, c.Seed)
	w, err := newWorld(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	defer w.stop()
	court := newCourt(w)
	n := newNemesis(w, court)
	for _, why := range w.without {
		fmt.Fprintln(c.Progress, why)
	}
	if err := w.startWorkers(court); err != nil {
		return nil, err
	}
	broken, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	go court.attend(broken, cancel)
	n.run(broken)
	if ctx.Err() == nil { // else all of it is about to be ended
		if err := w.heal(ctx); err != nil {
			court.fail(err)
		}
	}
	if err := court.failure(); err == nil && ctx.Err() == nil {
		court.end(ctx)
		fmt.Fprintln(c.Progress, court.progress()) // with what was done to see that all is right
	}
	result := court.finish()
	switch {
	case ctx.Err() != nil: // what went wrong may have come of it
		return result, context.Cause(ctx)
	case court.failure() != nil:
		return result, court.failure()
	}
	return result, nil
}

func (w *world) startWorkers(c *court) error {
	for i := range w.config.Workers {
		v := &worker{spec: Spec{Name: fmt.Sprintf("worker %d", i+1), Number: i + 1, Seed: w.config.Seed, Endpoints: w.endpoints(),
			CA: w.authority.ca(), DSN: w.postgres.DSN, Began: w.began}}
		v.process = &process{name: v.spec.Name, args: w.config.Worker, out: c.read, log: filepath.Join(w.config.Dir, fmt.Sprintf("worker-%d.log", i+1))}
		if err := v.begin(); err != nil {
			return err
		}
		w.workers = append(w.workers, v)
	}
	return nil
}

// attend tells how it goes, compares the members and judges old histories, until
// ctx ends. It ends the run if something went wrong that is no broken promise.
func (c *court) attend(ctx context.Context, stop func()) {
	for tick := 1; wait(ctx, time.Second); tick++ {
		fmt.Fprintln(c.world.config.Progress, c.progress())
		c.closeOld(ctx)
		if tick%2 == 0 {
			c.compare(ctx)
		}
		for _, v := range c.world.workers {
			if runs, expected := v.process.alive(); !runs && !expected {
				c.fail(fmt.Errorf("%s ended by itself; its log is %s", v.spec.Name, v.process.log))
			}
		}
		if c.failure() != nil && ctx.Err() == nil {
			stop()
		}
	}
}

// compare holds the members' hashes against each other. It reports whether all
// have applied the same.
func (c *court) compare(ctx context.Context) bool {
	indexes := map[uint64]int{}
	for _, m := range c.world.members {
		s, err := m.status(ctx)
		if err != nil {
			continue
		}
		if e, err := m.applied(s); err == nil {
			_ = c.cluster.See(e) // the report has it
			indexes[e.Index]++
		}
	}
	return len(indexes) == 1 && slices.Collect(maps.Values(indexes))[0] == len(c.world.members)
}

// end is what must hold when nothing is broken any more: every lock is granted,
// and the members are equal.
func (c *court) end(ctx context.Context) {
	for _, v := range c.world.workers {
		v.process.finish(stopLimit)
	}
	fmt.Fprintf(c.world.config.Progress, "%5.0fs  all is put right; every lock must be granted again\n", c.world.now().Seconds())
	healed := promise.Event{Kind: promise.Healed, At: c.world.now()}
	log, err := os.Create(filepath.Join(c.world.config.Dir, "survivor.log"))
	if err != nil {
		c.fail(err)
		return
	}
	defer log.Close()
	h, err := newHolder(Spec{Name: "survivor", Number: maxWorkers + 1, Life: 1, Seed: c.world.config.Seed, Endpoints: c.world.endpoints(), CA: c.world.authority.ca()},
		c.world.database, log, c.take)
	if err != nil {
		c.fail(err)
		return
	}
	defer h.close()
	limited, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.open))
	for _, history := range open {
		history.events = append(history.events, healed)
	}
	c.mu.Unlock()
	for _, history := range open {
		served := true
		for i := range locksOfOne {
			resource := resourceName(history.mode, history.name[len(history.mode)+1:], i)
			for !h.attempt(limited, resource) && limited.Err() == nil {
			}
			if limited.Err() != nil {
				served = false
				c.explain(ctx, h, resource)
			}
		}
		if served {
			c.mu.Lock()
			history.events = append(history.events, promise.Event{Kind: promise.Served, At: c.world.now(), Who: h.name})
			c.mu.Unlock()
		}
	}
	if !until(ctx, healLimit, func() bool { return c.compare(ctx) }) && ctx.Err() == nil {
		c.result.Violations = append(c.result.Violations, fmt.Sprintf("%s: the members did not come to the same index within %v", promise.Chain, healLimit))
	}
	c.closeAll(ctx)
}

// explain notes how things stand with a lock that is not granted.
func (c *court) explain(ctx context.Context, h *holder, resource fencing.Resource) {
	ctx, cancel := context.WithTimeout(ctx, 2*statusLimit)
	defer cancel()
	status, err := h.client.Inspect(ctx, resource)
	h.note("%s: %+v %v", resource, status, err)
	for _, m := range c.world.members {
		s, err := m.status(ctx)
		h.note("member %s: %v %v", m.name, s, err)
	}
}

// finish makes the result.
func (c *court) finish() *Result {
	c.waiting.Wait()
	cluster := c.cluster.Report(true)
	cluster.Runs, cluster.Time = 0, 0
	r := &c.result
	for _, m := range c.world.members {
		if line := m.alarm(); line != "" {
			cluster.Violations = append(cluster.Violations, fmt.Sprintf("member %s: %s", m.name, line))
		}
	}
	r.Report.Add(cluster)
	r.Setting, r.Seeds, r.Time, r.Faults, r.Without = "real processes", []uint64{c.world.config.Seed}, c.world.now(), c.kinds, c.world.without
	return r
}
