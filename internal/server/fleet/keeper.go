package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

const (
	// busyInterval and idleInterval are the times between two steps.
	busyInterval = 200 * time.Millisecond
	idleInterval = time.Second
	// leaderCheckInterval is the time between two checks of a follower whether it
	// leads now.
	leaderCheckInterval = 50 * time.Millisecond
	// progressInterval is the time to the next step after one that did something.
	progressInterval = 5 * time.Millisecond
	// stepTimeout bounds one step.
	stepTimeout = 10 * time.Second
)

// Keeper brings the Redis nodes to the state that the log requires, while this
// member leads: it recovers nodes that lost their state, and completes migrations
// and changes of the fleet.
type Keeper struct {
	log        *raftstore.Node
	connection *Connection
	seed       engine.Fleet
	clock      engine.Clock
	logger     *slog.Logger
	wake       chan struct{}

	seeding sync.Mutex // one SetFleet of the seed at a time

	mu    sync.Mutex
	last  Step
	leads bool

	// Used by the goroutine of Run only.
	plan     *Plan
	nodes    map[string]nodeState // by address, at the last step that reached the node
	failures failureLog
}

// NewKeeper returns a Keeper. seed is the fleet of the configuration, which a log that
// never had one adopts; it may be zero.
func NewKeeper(log *raftstore.Node, connection *Connection, seed engine.Fleet, clock engine.Clock,
	logger *slog.Logger) *Keeper {
	return &Keeper{log: log, connection: connection, seed: seed, clock: clock, logger: logger,
		wake: make(chan struct{}, 1)}
}

// Progress returns the last step. ok is false if this member does not lead.
func (k *Keeper) Progress() (step Step, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.leads
}

// Wake makes an idle Keeper take its next step now.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run takes steps while this member leads, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if !k.log.Leads() {
			k.forget()
			k.pause(ctx, leaderCheckInterval)
			continue
		}
		if k.plan == nil {
			k.plan, k.nodes, k.failures = NewPlan(), map[string]nodeState{}, failureLog{}
		}
		switch progressed, busy := k.step(ctx); {
		case progressed: // the next step may be possible now
			k.pause(ctx, progressInterval)
		case busy:
			k.pause(ctx, busyInterval)
		default:
			k.pause(ctx, idleInterval)
		}
	}
}

// forget drops what this member knew as the leader.
func (k *Keeper) forget() {
	k.plan = nil
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last, k.leads = Step{}, false
}

// pause waits. An idle pause ends early when the topology changes or Wake is
// called.
func (k *Keeper) pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if d != idleInterval {
		<-ctx.Done()
		return
	}
	go func() {
		_, _ = k.log.NextTopology(ctx, k.log.Topology().Version)
		cancel()
	}()
	select {
	case <-k.wake:
	case <-ctx.Done():
	}
}

// step takes one step. progressed reports whether it did something; the next step may then
// have more to do.
func (k *Keeper) step(ctx context.Context) (progressed, busy bool) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	k.failures.log(k.logger, "cannot set the Redis fleet of the configuration", "", k.Seed(ctx))
	state := k.log.Efficiency()
	backend := k.connection.BackendOf(state.Fleet)
	nodes := nodesOf(ctx, backend, state.Fleet)
	k.report(state, nodes)
	step := k.plan.Step(state, nodes, k.clock.Now())
	k.mu.Lock()
	k.last, k.leads = step, true
	k.mu.Unlock()
	return k.run(ctx, step.Actions, state, backend), step.Busy
}

// ProvideFloor moves the log past a floor that an operator provides, instead of past
// the reports of a quorum. Every later token of efficiency mode is above it. Without force
// it refuses a fleet whose nodes report that another one has replaced it.
func (k *Keeper) ProvideFloor(ctx context.Context, floor fencing.Token, force bool) error {
	state := k.log.Efficiency()
	switch {
	case state.Fleet.IsZero():
		return errNoFleet
	case state.Ready:
		return fmt.Errorf("%w: efficiency mode is ready and has a floor (%d)", engine.ErrInvalid, state.Floor)
	}
	var reports []recovery.Report
	for _, n := range nodesOf(ctx, k.connection.BackendOf(state.Fleet), state.Fleet) {
		reports = append(reports, n.Report)
	}
	e := recovery.Reconcile(state.Fleet.Fingerprint(), reports, !state.Restored)
	if e.Successor != "" && !force {
		return fmt.Errorf("%w: provide the floor %d: %s", engine.ErrInvalid, floor, replacedText(e.Successor))
	}
	if err := k.log.Change(ctx, reconcile(state.Version, e, floor)); err != nil {
		return fmt.Errorf("provide the floor %d: %w", floor, err)
	}
	k.Wake()
	return nil
}

// nodesOf asks all nodes for their reports. Without a backend none answers.
func nodesOf(ctx context.Context, backend *redlockadapter.Backend, fleet engine.Fleet) []recovery.Node {
	nodes := make([]recovery.Node, len(fleet.Addresses))
	if backend == nil {
		return nodes
	}
	for _, s := range backend.NodeStatuses(ctx) {
		if i := slices.Index(fleet.Addresses, s.Addr); i >= 0 {
			nodes[i] = s.Node
		}
	}
	return nodes
}

// Seed makes a log adopt the fleet of the configuration, unless a fleet was set before: an
// operator may have removed it.
func (k *Keeper) Seed(ctx context.Context) error {
	if k.seed.IsZero() {
		return nil
	}
	k.seeding.Lock()
	defer k.seeding.Unlock()
	state := k.log.Efficiency()
	if state.FleetSet {
		return nil
	}
	if _, err := k.log.SetFleet(ctx, k.seed, 0, false, false); err != nil {
		return fmt.Errorf("set the Redis fleet: %w", err)
	}
	return nil
}
