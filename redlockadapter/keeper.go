package redlockadapter

import (
	"context"
	"errors"
	"sync"
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
	done    chan struct{} // closed when run has ended

	mu   sync.Mutex
	last []NodeStatus // of the latest look; nil before the first

	recoveries map[string]*nodeRecovery // by address; used by look only
	checked    engine.Instant           // when verify ran last
	unreported []*attempt               // leases that ended, and may have expired

	// For recoveries: the floor that an operator provides, nil otherwise, and the time for
	// which a node must not vote.
	provided    *fencing.Token
	quarantine  time.Duration
	initialised map[string]bool // by address: nodes that this process has recovered
}

func newKeeper(b *Backend) *keeper {
	return &keeper{backend: b, log: newNodeLog(b.config.Logger, len(b.config.Nodes)), wake: make(chan struct{}, 1), done: make(chan struct{}), recoveries: map[string]*nodeRecovery{},
		quarantine: b.config.MaxTTL, initialised: map[string]bool{}}
}

// notify has the keeper look at the nodes soon.
func (k *keeper) notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	check := time.NewTicker(k.backend.config.checkInterval())
	defer check.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
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
		case <-sweep.C:
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

// look asks the nodes for their state. Without a service it also recovers empty nodes.
func (k *keeper) look(ctx context.Context) {
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
	if k.backend.config.Topology != nil {
		return
	}
	for i, s := range statuses {
		if r := k.recoveries[s.Addr]; s.Err == nil && r != nil && r.server != s.Report.Server {
			delete(k.recoveries, s.Addr) // the address leads to another server, and may lead back
		}
		if s.Err == nil && s.Report.Live == nil {
			k.log.lost(i, s.Addr)
			if err := k.recover(ctx, i, s); err != nil && ctx.Err() == nil {
				k.log.waits(i, s.Addr, err)
			}
		}
	}
}

// stateIsLost reports whether fewer than a quorum of the nodes can report which tokens
// were granted, even if those that the latest look did not reach can.
func (b *Backend) stateIsLost() bool {
	b.keeper.mu.Lock()
	last := b.keeper.last
	b.keeper.mu.Unlock()
	known := b.ofThisFleet(reports(last))
	for i, r := range known {
		if !r.Reached {
			known[i] = recovery.Report{Reached: true, Live: &recovery.State{}}
		}
	}
	_, ok := recovery.StandaloneFloor(known)
	return last != nil && !ok
}
