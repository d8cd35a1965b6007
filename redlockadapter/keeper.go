package redlockadapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

const (
	// sweepEvery is the time between two removals of idle records and former lives.
	sweepEvery = 10 * time.Minute
	// wakeCheckInterval is the minimum time between two checks of the servers when
	// requests fail.
	wakeCheckInterval = 100 * time.Millisecond
)

// keeper checks the servers periodically, sweeps them, and recovers lost nodes if there
// is no service.
type keeper struct {
	backend *Backend
	log     *nodeLog
	wake    chan struct{}

	mu   sync.Mutex
	last []NodeStatus // of the latest look; nil before the first
	// granted has, for each node, the largest token that this process had been granted when it last reached the
	// node; begun has, for each run of a server, that token before it saw the run vote.
	granted []fencing.Token
	begun   map[string]fencing.Token
	suspect atomic.Bool // checkFloors has found an error

	checked    engine.Instant // when verify ran last
	unreported []*attempt     // leases that ended, and may have expired

	// Without a service; used by look only.
	standalone recovery.Standalone
	snapshots  map[string]*snapshot // of floors, by the run of the server
	mayNotSave []bool               // the node has refused that to this process
}

func newKeeper(b *Backend) *keeper {
	ttl, nodes := b.config.MaxTTL, len(b.config.Nodes)
	return &keeper{backend: b, log: &nodeLog{logger: b.config.Logger, nodes: make([]loggedNode, nodes)},
		wake: make(chan struct{}, 1), snapshots: map[string]*snapshot{}, begun: map[string]fencing.Token{},
		granted: make([]fencing.Token, nodes), mayNotSave: make([]bool, nodes),
		standalone: recovery.Standalone{Fleet: b.fingerprint, Quarantine: ttl, MaxTTL: ttl}}
}

// notify has the keeper look at the nodes soon.
func (k *keeper) notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until the Backend is closed.
func (k *keeper) run() {
	ctx := k.backend.ctx
	check := time.NewTicker(k.backend.config.checkInterval())
	defer check.Stop()
	for {
		select {
		case <-check.C:
			k.verify(ctx)
			k.look(ctx)
		case <-k.wake:
			if k.backend.clock.Now().Since(k.checked) > wakeCheckInterval {
				k.verify(ctx)
			}
			k.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// sweep sweeps the servers until the Backend is closed. With millions of records that takes longer than the time
// between two checks of the servers, which must not wait for it.
func (k *keeper) sweep() {
	ctx := k.backend.ctx
	sweep := time.NewTicker(1 + rand.N(sweepEvery)) // processes that all live for less sweep, too
	defer sweep.Stop()
	for {
		select {
		case <-sweep.C:
			sweep.Reset(sweepEvery)
			_ = k.backend.Sweep(ctx) // the next one tries again
		case <-ctx.Done():
			return
		}
	}
}

// verify checks over new connections which servers the addresses lead to, and forgets
// grants that were not renewed.
func (k *keeper) verify(ctx context.Context) {
	b := k.backend
	k.checked = b.clock.Now()
	checks, cancel := context.WithTimeout(ctx, 2*b.config.NodeTimeout)
	b.each(func(i int, n *redisconn.Conn) {
		if err := n.Verify(checks); errors.Is(err, ErrNodeSetup) {
			k.log.saw(i, n.Addr(), err)
		}
	})
	cancel()
	expired := b.grants.expire(b.clock.Now())
	for _, a := range expired {
		b.queues.lost(a)
		b.debug("expired", &a.Held)
	}
	ctx, cancel = context.WithTimeout(ctx, 2*b.config.NodeTimeout)
	defer cancel()
	k.unreported = b.reportExpired(ctx, append(k.unreported, expired...))
}

// look asks the nodes for their state. Without a service it also recovers empty nodes, in as many steps as are
// possible now.
func (k *keeper) look(ctx context.Context) {
	for again := true; again; {
		granted := k.backend.grants.newestToken()
		statuses := k.backend.NodeStatuses(ctx)
		k.mu.Lock()
		k.last = statuses
		k.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		for i, s := range statuses {
			k.log.saw(i, s.Addr, s.Err)
		}
		again = false
		if k.backend.config.Topology == nil {
			_ = k.checkFloors(granted, statuses) // attempts report it
			again = k.recoverEmpty(ctx, statuses)
		}
	}
}

// recoverEmpty takes the next step of the recovery of empty nodes, and logs it. It reports whether the next step may
// have more to do at once.
func (k *keeper) recoverEmpty(ctx context.Context, statuses []NodeStatus) bool {
	for i, s := range statuses {
		if live := s.Report.Live; live != nil {
			k.log.recovered(i, s.Addr, uint64(live.Floor))
		} else if s.Err == nil {
			k.log.lost(i, s.Addr)
		}
	}
	progressed, waiting := k.recoverStep(ctx, statuses)
	if ctx.Err() != nil {
		return false
	}
	for i, why := range waiting {
		k.log.waits(i, statuses[i].Addr, why)
	}
	return progressed
}

// stateIsLost reports whether too few nodes can report which tokens were granted, according to the latest look.
func (b *Backend) stateIsLost() bool {
	b.keeper.mu.Lock()
	last := b.keeper.last
	b.keeper.mu.Unlock()
	return last != nil && recovery.StateIsLost(b.fingerprint, reports(last))
}
