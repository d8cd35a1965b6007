package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
)

// Result is what came of a run.
type Result struct {
	Report property.Report
	// Hash is of all events: the same Plan has the same.
	Hash uint64
	// Events are the whole story, if it was asked for.
	Events []property.Event
	// Bad are the broken promises, in the order in which they were broken.
	Bad []error
	// History is the beginning of what clients saw of the data, if asked for.
	History []linear.Op
}

// Option asks for more than the figures.
type Option func(*record)

// WithEvents keeps all events.
func WithEvents() Option { return func(r *record) { r.keep = true } }

// WithHistory keeps what clients saw of each lock's data, up to some operations.
func WithHistory(operations int) Option { return func(r *record) { r.history = operations } }

// record notes what happened.
type record struct {
	hash    uint64
	keep    bool
	history int
	events  []property.Event
	bad     []error
}

func (r *record) add(e property.Event) {
	r.hash = mix(r.hash, uint64(e.At), uint64(e.Kind), uint64(e.Token), e.Op, e.Seen, e.Version, e.Index, e.Hash, text(e.Who), text(string(e.Attempt)), text(e.Note))
	if r.keep {
		r.events = append(r.events, e)
	}
}

func text(s string) uint64 {
	hash := uint64(14695981039346656037)
	for i := range len(s) {
		hash = (hash ^ uint64(s[i])) * 1099511628211
	}
	return hash
}

func (r *record) broken(err error) { r.bad = append(r.bad, err) }

// grace is how long there may be no progress after everything is healed: time
// for elections, for leases of the dead to run out, for a node's clock that was
// set back to catch up.
const grace = 3 * time.Minute

// Run lets a plan happen.
func Run(plan Plan, options ...Option) *Result {
	w := &World{plan: plan, rng: rand.New(rand.NewPCG(plan.Seed, 7)), checker: property.NewChecker(plan.Setting.String()),
		record: &record{},
		net:    network{latency: plan.Latency, jitter: plan.Jitter, cuts: map[[2]int]int{}}}
	for _, option := range options {
		option(w.record)
	}
	w.live()
	return w.finish()
}

// live lets everything happen. That the code under test panics is a violation
// like any other, and the end.
func (w *World) live() {
	defer func() {
		if p := recover(); p != nil {
			w.violation(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	w.populate()
	for _, f := range w.plan.Faults {
		w.after(f.At, func() { w.inject(f) })
	}
	w.run(w.plan.Length, func() bool { return false })
	w.now = w.plan.Length
	w.heal()
	w.run(w.plan.Length+grace, func() bool { return !slices.Contains(w.served, false) && w.unfinished() == "" })
	if !slices.Contains(w.served, false) {
		w.emit(property.Event{Kind: property.Served})
	}
	if what := w.unfinished(); what != "" {
		w.violation(fmt.Errorf("every change ends: %s is unfinished %v after everything was healed", what, grace))
	}
}

// populate brings everybody in: the nodes first, so that their numbers are their
// places.
func (w *World) populate() {
	for i := range w.plan.Locks {
		w.locks = append(w.locks, fencing.Resource("lock/"+strconv.Itoa(i+1)))
	}
	w.served = make([]bool, len(w.locks))
	if w.plan.Setting != Standalone {
		w.checker.Log = true
		w.cluster = newCluster(w)
		w.after(time.Second, func() { w.cluster.setUp(w.beginnings()) })
	}
	servers := w.plan.Redises
	if w.plan.Setting == Standalone {
		servers = w.plan.Nodes
	}
	for i := range servers {
		w.redises = append(w.redises, newRedisServer(w, i+1))
	}
	if w.plan.Setting == Standalone {
		w.initStandalone()
	}
	w.store = newStorage(w)
	for i := range w.plan.Clients {
		c := newClient(w, fmt.Sprintf("client %d", i+1))
		switch w.plan.Setting {
		case Correctness:
			c.service = &raftClient{client: c}
		case Standalone:
			c.service = newStandaloneClient(c)
		case Service:
			c.service = newRouter(c)
		}
		w.clients = append(w.clients, c)
	}
	for _, c := range w.clients {
		c.begin()
	}
}

// finish compares what the storage holds, and adds everything up.
func (w *World) finish() *Result {
	for _, name := range w.locks {
		w.emit(property.Event{Kind: property.Found, Who: w.store.name, Resource: name, Version: w.store.data[name].version})
	}
	report := w.checker.Report(true)
	report.Seeds = []uint64{w.plan.Seed}
	bad := w.record.bad
	for _, v := range report.Violations[min(len(report.Violations), len(bad)-len(w.bad)):] {
		bad = append(bad, errors.New(v)) // what was owed at the end
	}
	for _, err := range w.bad {
		report.Violations = append(report.Violations, err.Error())
	}
	if w.plan.Synchronous() && report.Overlaps > 0 {
		err := fmt.Errorf("M2: %d times two clients believed to hold one lock, though nobody paused and all clocks were right", report.Overlaps)
		bad = append(bad, err)
		report.Violations = append(report.Violations, err.Error())
	}
	return &Result{Report: report, Hash: w.record.hash, Events: w.record.events, Bad: bad, History: w.history()}
}

// servedLock notes a grant after everything is healed.
func (w *World) servedLock(a *attempt) {
	if a.asked >= w.plan.Length {
		w.served[a.lock] = true
	}
}

// clientKey is how the judge knows an attempt of a client.
func (w *World) clientKey(number int, nonce engine.Nonce) property.Attempt {
	return property.Attempt(w.processes[number].name[len("client "):] + "/" + strconv.FormatUint(uint64(nonce), 10))
}

func (c *client) key(nonce engine.Nonce) property.Attempt { return c.w.clientKey(c.number, nonce) }
