package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// initInterval is the time between two steps of Init.
const initInterval = 20 * time.Millisecond

// Init makes the nodes of a new standalone fleet voters, with tokens above floor. An
// operator also calls it for a fleet of which fewer than a quorum can report which
// tokens were granted; floor must then be above every token that was ever granted. Voters
// of this fleet stay as they are; a voter of another fleet is an error.
//
// It is a recovery in which the operator vouches for the floor. A quorum of the nodes must
// be reachable, and must be able to save the floor to disk before a node votes. Nodes wait
// for their quarantine, unless all nodes are reachable and none has a history. Init returns
// when every node that it reached votes.
func Init(ctx context.Context, config Config, floor fencing.Token) error {
	config.Topology = nil
	b, err := connect(ctx, config)
	if err != nil {
		return err
	}
	close(b.keeper.done) // it never ran
	defer b.Close(context.WithoutCancel(ctx))
	statuses := b.NodeStatuses(ctx)
	history, all := false, true
	for _, s := range statuses {
		if live := s.Report.Live; live != nil && live.Fleet != b.fingerprint {
			return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, s.Addr, scripts.ErrFleet)
		}
		history = history || s.Report.Live != nil || s.Report.Former != nil
		all = all && s.Err == nil
	}
	if err := b.checkStandalone(reports(statuses)); err != nil {
		return err
	}
	k := b.keeper
	k.provided = &floor
	switch {
	case history:
		known, _ := recovery.StandaloneFloor(reports(statuses))
		floor = max(floor, known)
	case all:
		k.quarantine = 0
	}
	return k.recoverAll(ctx)
}

// recoverAll recovers every empty node that can be reached.
func (k *keeper) recoverAll(ctx context.Context) error {
	b := k.backend
	for {
		statuses := b.NodeStatuses(ctx)
		voters, errs := 0, make([]error, len(statuses))
		waiting := false
		for i, s := range statuses {
			if errs[i] = s.Err; s.Err != nil {
				continue
			}
			if s.Report.Live == nil {
				errs[i] = k.recover(ctx, i, s)
				waiting = waiting || errs[i] != nil
			}
			if errs[i] == nil {
				voters++
			}
		}
		switch failed := errors.Join(errs...); {
		case !waiting && voters >= b.quorum:
			return nil
		case errors.Is(failed, errNotSaved):
			return fmt.Errorf("%w: %w", engine.ErrUnavailable, failed)
		}
		select {
		case <-time.After(initInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d Redis nodes were initialised, %d are needed: %w: %w",
				engine.ErrUnavailable, voters, len(b.nodes), b.quorum, context.Cause(ctx), errors.Join(errs...))
		}
	}
}

// errQuarantine reports a node that must not vote yet.
var errQuarantine = errors.New("the node is in quarantine")

// nodeRecovery is the recovery of a node by this process.
type nodeRecovery struct {
	server    string // the run of the server
	join      string
	reserved  bool
	floor     fencing.Token     // once it is reserved on a quorum
	snapshots map[int]*snapshot // of the nodes that reserved the floor
}

// recover takes the next step to give an empty node a fresh range. Its floor is above
// everything that a quorum reports after the quarantine, and is reserved on a quorum before
// the node votes.
//
// The reports must not be older. Until the quarantine ends, another server that the address
// led to may still vote. If the other nodes moved to the new floor before that, it could
// help to grant tokens above the floor, which the new server accepts again.
func (k *keeper) recover(ctx context.Context, node int, s NodeStatus) error {
	b := k.backend
	at, r := b.at(node, s.Report.Server), k.recoveries[s.Addr]
	if r == nil || r.server != s.Report.Server || r.join != s.Joining {
		if b.foreign() {
			return scripts.ErrFleet
		}
		r = &nodeRecovery{server: s.Report.Server, join: engine.NewSessionID().String()}
	}
	join := scripts.Join{Nonce: r.join, Version: standaloneVersion, Fleet: b.fingerprint, Keep: b.config.joinGap(), Gap: b.config.joinGap()}
	if k.provided != nil {
		join.Keep = 0
	}
	waited, err := join.Put(ctx, at)
	if err != nil {
		return err
	}
	k.recoveries[s.Addr] = r
	if left := k.quarantineOf(s.Addr) - waited; left > 0 {
		r.reserved = false // the quarantine has started again
		return fmt.Errorf("%w for %v", errQuarantine, left)
	}
	if !r.reserved {
		floor, snapshots, err := k.reserveFloor(ctx, s.Addr)
		if err != nil {
			return err
		}
		r.reserved, r.floor, r.snapshots = true, floor, snapshots
	}
	if saved, err := b.saveSnapshots(ctx, r.snapshots); saved < b.quorum {
		progress := fmt.Errorf("%d of %d Redis nodes have saved the floor of %s to disk, %d are needed", saved, len(b.nodes), s.Addr, b.quorum)
		if errors.Is(err, redisconn.ErrLife) {
			r.reserved = false // a server has restarted since, possibly with older data
		}
		return errors.Join(progress, err)
	}
	wait, err := scripts.Init(ctx, at, b.fingerprint, recovery.Range{Join: r.join, Version: standaloneVersion, Floor: r.floor, Ceiling: fencing.MaxToken,
		Quarantine: k.quarantineOf(s.Addr)})
	if err != nil {
		return err
	}
	if wait > 0 { // the quarantine has started again
		r.reserved = false
		return fmt.Errorf("%w for %v", errQuarantine, wait)
	}
	delete(k.recoveries, s.Addr)
	k.initialised[s.Addr] = true
	if k.provided == nil {
		k.log.recovered(node, s.Addr, uint64(r.floor))
	}
	return nil
}

// quarantineOf returns the time for which a node must not vote. A node that is lost again
// after Init made it a voter has a history.
func (k *keeper) quarantineOf(addr string) time.Duration {
	if k.initialised[addr] {
		return k.backend.config.MaxTTL
	}
	return k.quarantine
}

// reserveFloor returns the floor for an empty node, after a quorum has reserved it: if
// the node is lost again, its next floor must be above this one.
func (k *keeper) reserveFloor(ctx context.Context, addr string) (fencing.Token, map[int]*snapshot, error) {
	b := k.backend
	all := reports(b.NodeStatuses(ctx))
	floor, _ := recovery.StandaloneFloor(all)
	if first := k.provided != nil && !k.initialised[addr]; first {
		floor = *k.provided
	} else if _, ok := recovery.StandaloneFloor(b.ofThisFleet(all)); !ok {
		return fencing.None, nil, ErrNoState
	}
	if floor > fencing.MaxToken-recovery.Jump {
		return fencing.None, nil, redisconn.SetupError(addr, "its tokens are near 2^53; start a new namespace")
	}
	if err := b.checkStandalone(all); err != nil {
		return fencing.None, nil, err
	}
	var mu sync.Mutex
	snapshots := map[int]*snapshot{}
	b.each(func(i int, n *redisconn.Conn) {
		server := n.At(all[i].Server)
		if all[i].Reached && scripts.Reserve(ctx, server, b.fingerprint, floor, k.provided != nil) == nil {
			mu.Lock()
			defer mu.Unlock()
			snapshots[i] = &snapshot{server: server, reserved: b.clock.Now()}
		}
	})
	if len(snapshots) < b.quorum {
		return fencing.None, nil, fmt.Errorf("%w: %d of %d Redis nodes reserved the floor of %s, %d are needed",
			engine.ErrUnavailable, len(snapshots), len(b.nodes), addr, b.quorum)
	}
	return floor, snapshots, nil
}

// saveSnapshots has the nodes write a reserved floor to disk, and returns how many have
// done so, and why others have not. Otherwise a restart from older data could bring an older
// floor back.
func (b *Backend) saveSnapshots(ctx context.Context, snapshots map[int]*snapshot) (saved int, err error) {
	errs := make([]error, len(b.nodes))
	b.each(func(i int, _ *redisconn.Conn) {
		if s := snapshots[i]; s != nil {
			errs[i] = s.advance(ctx, b.clock.Now())
		}
	})
	for _, s := range snapshots {
		if s.done {
			saved++
		}
	}
	return saved, errors.Join(errs...)
}

// checkStandalone refuses to initialise nodes that a service has used: its log knows
// which tokens they may accept.
func (b *Backend) checkStandalone(all []recovery.Report) error {
	for _, r := range all {
		for _, s := range []*recovery.State{r.Live, r.Former} {
			if s != nil && s.Version > standaloneVersion {
				return b.versionError()
			}
		}
	}
	return nil
}

// foreign reports whether a node voted in another fleet at the latest look. This process
// must then keep out of the recoveries of that fleet.
func (b *Backend) foreign() bool {
	b.keeper.mu.Lock()
	defer b.keeper.mu.Unlock()
	return slices.ContainsFunc(b.keeper.last, func(s NodeStatus) bool { return s.Report.Live != nil && s.Report.Live.Fleet != b.fingerprint })
}

// ofThisFleet returns the reports without the state of other fleets. Only a quorum of
// this fleet may recover a node: two fleets that share nodes must not divide them.
func (b *Backend) ofThisFleet(all []recovery.Report) []recovery.Report {
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
