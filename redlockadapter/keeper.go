package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

const (
	// checkEvery is how often the servers behind open connections are checked, and
	// lost nodes are looked for.
	checkEvery = time.Second
	// sweepEvery is how often idle records and former lives are removed.
	sweepEvery = 10 * time.Minute
	// joinPatience is how long a process leaves the recovery of a node to another
	// one that has begun it, beyond the quarantine.
	joinPatience = 10 * time.Second
)

// keeper checks the servers, sweeps them, and, where there is no service,
// recovers nodes that lost their state.
type keeper struct {
	backend *Backend
	wake    chan struct{}
	done    chan struct{}

	mu   sync.Mutex
	last []NodeStatus // of the latest look; nil before the first

	// Only run uses these.
	joins map[string]*joining // by address and life
}

func newKeeper(b *Backend) *keeper {
	return &keeper{backend: b, wake: make(chan struct{}, 1), done: make(chan struct{}), joins: map[string]*joining{}}
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-tick.C:
			k.verify(ctx)
			k.look(ctx)
		case <-k.wake:
			k.look(ctx)
		case <-sweep.C:
			_ = k.backend.Sweep(ctx) // the next one tries again
		case <-ctx.Done():
			return
		}
	}
}

// verify checks that the servers are what they were, and forgets grants whose
// callers have gone.
func (k *keeper) verify(ctx context.Context) {
	b := k.backend
	ctx, cancel := context.WithTimeout(ctx, 2*b.config.NodeTimeout)
	defer cancel()
	b.each(func(_ int, n *node) {
		if err := n.verify(ctx); errors.Is(err, ErrNodeSetup) {
			b.config.Logger.Warn("disconnected from a Redis node", "node", n.addr, "error", err)
		}
	})
	for _, a := range b.granted.expire(b.clock.Now()) {
		b.queues.lost(a)
	}
}

// look asks the nodes for their state and recovers those that lost it, unless a
// service does that.
func (k *keeper) look(ctx context.Context) {
	statuses := k.backend.NodeStatuses(ctx)
	k.mu.Lock()
	k.last = statuses
	k.mu.Unlock()
	if k.backend.config.Topology != nil {
		return
	}
	for i, s := range statuses {
		if s.Err == nil && s.Report.Reached && s.Report.Live == nil {
			if err := k.recover(ctx, i, s); err != nil && ctx.Err() == nil {
				k.backend.config.Logger.Debug("a Redis node is not recovered yet", "node", s.Addr, "error", err)
			}
		}
	}
}

// joining is a recovery that this process has begun.
type joining struct {
	nonce string
	floor fencing.Token   // reserved on a quorum; None before that
	saves map[int]*saving // of the nodes that reserved it
}

// recover gives an empty node a fresh range: above everything that a quorum
// reports, asked after the join nonce was put on the node, and reserved on a
// quorum before the node votes. It is reserved when the quarantine begins, so that
// an append-only file has it on disk long before.
func (k *keeper) recover(ctx context.Context, node int, s NodeStatus) error {
	b := k.backend
	id := s.Addr + " " + s.Identity
	j := k.joins[id]
	if j == nil || s.Joining != j.nonce {
		j = &joining{nonce: engine.NewSessionID().String()}
		if err := b.join(ctx, node, j.nonce, standaloneVersion, b.config.MaxTTL+joinPatience); err != nil {
			return err
		}
		k.joins[id] = j
	}
	if j.floor == fencing.None {
		floor, saves, err := b.reserveFloor(ctx, s.Addr)
		if err != nil {
			return err
		}
		j.floor, j.saves = floor, saves
	}
	if saved := b.persist(ctx, j.saves); saved < b.quorum {
		return fmt.Errorf("%d of %d Redis nodes have saved the floor, %d are needed", saved, len(b.nodes), b.quorum)
	}
	wait, err := b.Initialise(ctx, node, Range{Join: j.nonce, Version: standaloneVersion, Floor: j.floor, Ceiling: fencing.MaxToken,
		Quarantine: b.config.MaxTTL})
	if err != nil {
		return err
	}
	if wait > 0 {
		return fmt.Errorf("quarantine ends in %v", wait)
	}
	delete(k.joins, id)
	b.config.Logger.Info("recovered a Redis node", "node", s.Addr, "floor", j.floor)
	return nil
}

// reserveFloor returns the floor that a lost node may start from, once a quorum
// remembers it: if the node is lost again, the next floor must be above this one.
func (b *Backend) reserveFloor(ctx context.Context, addr string) (fencing.Token, map[int]*saving, error) {
	all := reports(b.NodeStatuses(ctx))
	floor, _ := recovery.StandaloneFloor(all)
	if _, ok := recovery.StandaloneFloor(b.own(all)); !ok {
		return fencing.None, nil, ErrNoState
	}
	if floor > fencing.MaxToken-recovery.Jump {
		return fencing.None, nil, setupError(addr, "its tokens have come near 2^53; start a new namespace")
	}
	if err := b.refuseService(all); err != nil {
		return fencing.None, nil, err
	}
	var mu sync.Mutex
	saves := map[int]*saving{}
	b.each(func(i int, n *node) {
		got, err := n.call(ctx, reserveScript, []string{nodeKey, lifeKey}, b.fingerprint, floor.String())
		if err == nil && got.word(0) == "ok" {
			mu.Lock()
			defer mu.Unlock()
			saves[i] = &saving{}
		}
	})
	if len(saves) < b.quorum {
		return fencing.None, nil, fmt.Errorf("%w: %d of %d Redis nodes reserved the floor of %s, %d are needed",
			engine.ErrUnavailable, len(saves), len(b.nodes), addr, b.quorum)
	}
	return floor, saves, nil
}

// persist has the nodes save a floor that they reserved, and returns how many have.
// Without it, data that is older than the last recovery could come back, and with
// it the floor of that recovery.
func (b *Backend) persist(ctx context.Context, saves map[int]*saving) (saved int) {
	b.each(func(i int, n *node) {
		if s := saves[i]; s != nil {
			s.advance(ctx, n, b.config.Logger.Warn)
		}
	})
	for _, s := range saves {
		if s.done {
			saved++
		}
	}
	return saved
}

// refuseService refuses to decide about nodes that a service has used: its log
// knows which tokens they may accept.
func (b *Backend) refuseService(all []recovery.Report) error {
	for _, r := range all {
		for _, s := range []*recovery.State{r.Live, r.Former} {
			if s != nil && s.Version > standaloneVersion {
				return b.versionError()
			}
		}
	}
	return nil
}

// own returns the reports without the nodes of other fleets. Only a quorum of this
// fleet may recover a node: two fleets that share nodes must not divide them.
func (b *Backend) own(all []recovery.Report) []recovery.Report {
	mine := make([]recovery.Report, len(all))
	for i, r := range all {
		if s := r.Live; s == nil || s.Fleet == b.fingerprint {
			mine[i] = r
		}
		if s := r.Former; s != nil && s.Fleet != b.fingerprint {
			mine[i].Former = nil
		}
	}
	return mine
}

// explain is the error of a call that no majority of the nodes answered.
func (b *Backend) explain(errs []error) error {
	accepted, empty := 0, 0
	var why []error
	for i, err := range errs {
		switch {
		case err == nil:
			accepted++
			continue
		case errors.Is(err, errEmpty):
			empty++
		}
		why = append(why, fmt.Errorf("%s: %w", b.nodes[i].addr, err))
	}
	err := fmt.Errorf("%w: %d of %d Redis nodes agreed, %d are needed; see 'leased redis status': %w",
		engine.ErrUnavailable, accepted, len(b.nodes), b.quorum, errors.Join(why...))
	if b.config.Topology != nil || accepted+empty < b.quorum {
		return err
	}
	b.keeper.mu.Lock()
	last := b.keeper.last
	b.keeper.mu.Unlock()
	known := b.own(reports(last))
	for i, r := range known {
		if !r.Reached {
			known[i] = recovery.Report{Reached: true, Live: &recovery.State{}} // it may still report
		}
	}
	if _, ok := recovery.StandaloneFloor(known); last != nil && !ok {
		return fmt.Errorf("%w: %w", ErrNoState, err)
	}
	return err
}

// versionError is the refusal by nodes that have a newer version.
func (b *Backend) versionError() error {
	if b.config.Topology != nil {
		return ErrVersion
	}
	return fmt.Errorf("%w: the Redis nodes of namespace %q belong to a service, which decides about their locks; use the service, or another namespace",
		engine.ErrUnavailable, b.config.Namespace)
}
