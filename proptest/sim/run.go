package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// Result is the result of a run.
type Result struct {
	Report property.Report
	// Hash covers all events: it is the same for the same Plan.
	Hash uint64
	// Events is the whole history, with WithEvents, or the operations at the gate, with WithHistory.
	Events []property.Event
	// Bad lists the violations, in order.
	Bad []error
	// History is the beginning of the operations on the data, with WithHistory.
	History []property.Op
}

// Option requests more than the figures.
type Option func(*record)

// WithEvents keeps all events.
func WithEvents() Option { return func(r *record) { r.keep = true } }

// WithHistory keeps the operations of clients on each lock's data, up to a number.
func WithHistory(operations int) Option { return func(r *record) { r.history = operations } }

// record is the recording of a run.
type record struct {
	hash    uint64
	keep    bool
	history int
	events  []property.Event
	bad     []error
}

func (r *record) add(e property.Event) {
	if e.Access == property.Write {
		r.hash = mix(r.hash, uint64(e.At), uint64(e.Kind), uint64(e.Token), e.Op, e.Seen, e.Version, e.Index, e.Hash,
			text(e.Who), text(string(e.Attempt)), text(e.Note))
	}
	if r.keep || r.history > 0 && e.Kind >= property.Sent && e.Kind <= property.Rejected {
		r.events = append(r.events, e)
	}
}

func text(s string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(s)) // never fails
	return hash.Sum64()
}

// grace is the time in which there must be progress after all faults are repaired:
// elections, the expiry of leases of crashed clients, and the catching up of a clock that
// was set back take time.
const grace = 3 * time.Minute

// Run executes a plan.
func Run(plan Plan, options ...Option) *Result {
	w := &World{plan: plan, rng: rand.New(rand.NewPCG(plan.Seed, 7)), checker: property.NewChecker(plan.Setting.String()),
		record: &record{}, granted: map[fencing.Resource]fencing.Token{},
		net: network{latency: plan.Latency, jitter: plan.Jitter, cuts: map[[2]int]int{}}}
	for _, option := range options {
		option(w.record)
	}
	w.simulate()
	return w.finish()
}

// simulate executes the plan. A panic of the code under test is a violation and ends the
// run.
func (w *World) simulate() {
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
		w.violation(fmt.Errorf("every change completes: %s is unfinished %v after all faults were repaired", what, grace))
		return
	}
	for _, s := range w.redises {
		if s.wrong != 0 {
			w.putRight(s)
		}
	}
	if w.run(w.now+grace, func() bool { return w.withoutVote() == "" }); w.withoutVote() != "" {
		w.violation(fmt.Errorf("every node votes again: %s does not vote %v after it was put right", w.withoutVote(), grace))
	}
}

// populate creates all processes, nodes first, so that their numbers are their indexes.
func (w *World) populate() {
	for i := range w.plan.Locks {
		w.locks = append(w.locks, fencing.Resource("lock/"+strconv.Itoa(i+1)))
	}
	w.served = make([]bool, len(w.locks))
	if w.plan.Setting != Standalone {
		w.checker.Log = true
		w.cluster = newCluster(w)
		w.after(time.Second, func() { w.cluster.setUp(w.initialCommands()) })
	}
	servers := w.plan.Redises
	if w.plan.Setting == Standalone {
		servers = w.plan.Nodes
	}
	for i := range servers {
		w.redises = append(w.redises, newRedisServer(w, i+1))
	}
	w.store = newStorage(w)
	for i := range w.plan.Clients {
		c := &client{process: w.newProcess(fmt.Sprintf("client %d", i+1)), w: w,
			policy: engine.Policy{TTL: w.plan.TTL}.Filled()}
		w.clients = append(w.clients, c)
		switch w.plan.Setting {
		case Correctness:
			c.engines = map[engine.Mode]locks{engine.AnyMode: &raftClient{client: c}}
		case Standalone:
			c.engines = map[engine.Mode]locks{engine.AnyMode: newStandaloneClient(c, w.redises)}
			if w.outsider(c) {
				c.policy = engine.Policy{TTL: 2 * w.plan.TTL}.Filled()
			}
		case Service:
			if w.adopted(c) {
				c.engines = map[engine.Mode]locks{engine.AnyMode: newStandaloneClient(c, w.redises[:3])}
				break
			}
			c.follow = &topologyFollower{client: c}
			c.engines = map[engine.Mode]locks{engine.Correctness: &raftClient{client: c},
				engine.Efficiency: &redisClient{client: c, authorize: c.follow.authorize}}
		}
	}
	for _, c := range w.clients {
		c.begin()
	}
	if w.plan.Setting == Standalone {
		w.operateStandalone(0)
	}
}

// outsider reports whether a client is the outsider of the plan.
func (w *World) outsider(c *client) bool {
	return w.plan.Outsider && len(w.clients) == w.plan.Clients && c == w.clients[w.plan.Clients-1]
}

// adopted reports whether a client uses nodes that the service will adopt, without the service.
func (w *World) adopted(c *client) bool { return w.plan.Setting == Service && w.outsider(c) }

// finish checks the final data and builds the result.
func (w *World) finish() *Result {
	for _, name := range w.locks {
		w.emit(property.Event{Kind: property.Found, Who: w.store.name, Resource: name, Version: w.store.data[name].version})
	}
	before := len(w.checker.Report(false).Violations)
	report := w.checker.Report(true)
	report.Seeds = []uint64{w.plan.Seed}
	for _, v := range report.Violations[before:] {
		w.violation(errors.New(v)) // found at the end
	}
	if w.plan.Synchronous() && report.Overlaps > 0 {
		w.violation(fmt.Errorf("M2: two clients held one lock %d times, although no client paused and all clocks were right",
			report.Overlaps))
	}
	report.Violations = nil
	for _, err := range w.record.bad {
		report.Violations = append(report.Violations, err.Error())
	}
	return &Result{Report: report, Hash: w.record.hash, Events: w.record.events, Bad: w.record.bad,
		History: property.First(property.Operations(w.record.events), w.record.history)}
}

// attemptKey returns the identity of an attempt for the property checker: client, session
// and nonce.
func (w *World) attemptKey(session engine.SessionID, nonce engine.Nonce) property.Attempt {
	client := w.processes[session[0]].name[len("client "):]
	return property.Attempt(fmt.Sprintf("%s/%d.%d", client, int(session[1])<<8|int(session[2]), nonce))
}
