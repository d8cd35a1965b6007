//go:build linux

package torture

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/proptest/property"
)

const (
	// healLimit bounds the time until a lock is granted after the last fault: a lock that
	// a Redis node granted while its clock was ahead stays held there, and the host may be
	// busy.
	healLimit  = 2 * time.Minute
	workerName = "worker %d"
)

// worker is a worker's process.
type worker struct {
	spec    Spec
	process *testserver.Process
}

// begin starts it as a new process.
func (v *worker) begin() error {
	v.spec.Life++
	v.process.Env = []string{v.spec.env(), "NODE_EXTRA_CA_CERTS=" + v.spec.CA} // Node.js reads no other setting
	return v.process.Start()
}

// Run starts all processes, injects faults, and checks the histories. An error means that
// the run itself failed; violations are in the Result. If ctx ends, the Result covers what
// was checked until then.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	servers := fmt.Sprintf("%d members, %d Redis nodes, PostgreSQL", memberCount, redisCount)
	if c.Scenario == Postgres {
		servers = "PostgreSQL, a second one for the locks, its standby"
	}
	fmt.Fprintf(c.Progress, "starting %s and %d workers; scenario %s, seed %d\n", servers, c.Workers, c.Scenario, c.Seed)
	w, err := newWorld(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	defer w.stop()
	checker := newChecker(w)
	n := newNemesis(checker)
	for _, why := range w.without {
		fmt.Fprintln(c.Progress, why)
	}
	if err := w.startWorkers(checker); err != nil {
		return nil, err
	}
	faults, cancel := context.WithCancel(ctx)
	defer cancel()
	go checker.monitor(faults, cancel)
	scenarios[c.Scenario].faults(n, faults)
	cancel()
	if ctx.Err() == nil { // else all processes are stopped next
		if err := w.heal(ctx); err != nil {
			checker.fail(err)
		}
	}
	if err := checker.failure(); err == nil && ctx.Err() == nil {
		checker.end(ctx)
		fmt.Fprintln(c.Progress, checker.progress()) // including the final checks
	}
	result := checker.finish()
	switch {
	case ctx.Err() != nil: // other errors may follow from it
		return result, context.Cause(ctx)
	case checker.failure() != nil:
		return result, checker.failure()
	}
	return result, nil
}

func (w *world) startWorkers(c *checker) error {
	commands := append([][]string{w.config.Worker}, w.config.Others...)
	for i := range w.config.Workers {
		name := fmt.Sprintf(workerName, i+1)
		v := &worker{spec: Spec{Name: name, Number: i + 1, Seed: w.config.Seed,
			Endpoints: w.endpoints(), CA: w.ca(), DSN: w.postgres.DSN, Locks: w.locksDSN(), Began: w.began,
			Classes: scenarios[w.config.Scenario].classes, ThroughMember: throughMember(name)}}
		v.process = &testserver.Process{Name: name, Args: commands[i%len(commands)], Out: c.read,
			Log: filepath.Join(w.config.Dir, fmt.Sprintf("worker-%d.log", i+1))}
		if err := v.begin(); err != nil {
			return err
		}
		w.workers = append(w.workers, v)
	}
	return nil
}

// throughMember reports whether a worker has no connection to Redis: one in three.
func throughMember(name string) bool {
	var number int
	_, err := fmt.Sscanf(name, workerName, &number)
	return err == nil && number%3 == 0
}

// monitor prints progress, compares the members and checks completed histories until ctx
// ends. It stops the run on an error other than a violation.
func (c *checker) monitor(ctx context.Context, stop func()) {
	for tick := 1; wait(ctx, time.Second); tick++ {
		fmt.Fprintln(c.world.config.Progress, c.progress())
		c.closeOld(ctx)
		if tick%2 == 0 {
			c.compare(ctx)
		}
		for _, v := range c.world.workers {
			if runs, expected := v.process.Alive(); !runs && !expected {
				c.fail(fmt.Errorf("%s ended by itself; its log is %s", v.spec.Name, v.process.Log))
			}
		}
		if c.failure() != nil && ctx.Err() == nil {
			stop()
		}
	}
}

// compare compares the members' chain hashes. It reports whether all members have
// applied the same entries.
func (c *checker) compare(ctx context.Context) bool {
	indexes := map[uint64]int{}
	for _, m := range c.world.members {
		s, err := m.status(ctx)
		if err != nil {
			continue
		}
		if e, err := m.applied(s); err == nil {
			_ = c.cluster.Observe(e) // it is in the report
			indexes[e.Index]++
		}
	}
	return len(c.world.members) == 0 || len(indexes) == 1 &&
		slices.Collect(maps.Values(indexes))[0] == len(c.world.members)
}

// end checks what must hold after the last fault: every migration completes, every lock is
// granted, and the members are equal.
func (c *checker) end(ctx context.Context) {
	for _, v := range c.world.workers {
		v.process.Finish(stopLimit)
	}
	fmt.Fprintf(c.world.config.Progress, "%5.0fs  all faults are repaired; every lock must be granted again\n",
		c.world.now().Seconds())
	if c.world.config.Scenario == Random {
		c.migrator.finish(ctx)
	}
	healed := property.Event{Kind: property.Healed, At: c.world.now()}
	log, err := os.Create(filepath.Join(c.world.config.Dir, "final.log"))
	if err != nil {
		c.fail(err)
		return
	}
	defer log.Close()
	h, err := newHolder(ctx, Spec{Name: "final", Number: maxWorkers + 1, Life: 1, Seed: c.world.config.Seed,
		Endpoints: c.world.endpoints(), CA: c.world.ca(),
		Locks: c.world.locksDSN()},
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
			resource := resourceName(history.class, history.name[len(history.class)+1:], i)
			for !h.attempt(limited, resource) && limited.Err() == nil {
				c.reviveMembers()
			}
			if limited.Err() != nil {
				served = false
				c.explain(ctx, h, resource)
			}
		}
		if served {
			c.mu.Lock()
			history.events = append(history.events, property.Event{Kind: property.Served, At: c.world.now(), Who: h.name})
			c.mu.Unlock()
		}
	}
	if !until(ctx, healLimit, func() bool { c.reviveMembers(); return c.compare(ctx) }) && ctx.Err() == nil {
		c.violate(fmt.Sprintf("%s: the members did not reach the same index within %v: %s", property.Chain, healLimit,
			c.states(ctx)))
	}
	c.closeAll(ctx)
}

// states describes the members.
func (c *checker) states(ctx context.Context) string {
	var all []string
	for _, m := range c.world.members {
		runs, _ := m.process.Alive()
		s, err := m.status(ctx)
		all = append(all, fmt.Sprintf("member %s: running %t, applied %d, leader %q, %v", m.name, runs, s.GetChainIndex(),
			s.GetLeader(), err))
	}
	return strings.Join(all, "; ")
}

// explain logs the state of a lock that is not granted.
func (c *checker) explain(ctx context.Context, h *holder, resource fencing.Resource) {
	ctx, cancel := context.WithTimeout(ctx, 2*statusLimit)
	defer cancel()
	status, err := h.client.Inspect(ctx, resource)
	h.note("%s: %+v %v", resource, status, err)
	h.note("%s", c.states(ctx))
}

// finish returns the result.
func (c *checker) finish() *Result {
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
	grants := r.Switches.Grants
	r.Switches = c.migrator.figures()
	r.Switches.Grants = grants
	r.Scenario, r.Routes = c.world.config.Scenario, c.grants.figures()
	r.Setting, r.Seeds, r.Time, r.Faults, r.Without = "real processes", []uint64{c.world.config.Seed}, c.world.now(),
		c.kinds, c.world.without
	return r
}
