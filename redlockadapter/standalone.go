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
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// otherRecovery is the time, beyond the quarantine, for which a process leaves the
// recovery of a node to another process that has started it.
const otherRecovery = 10 * time.Second

// Init makes the nodes of a new standalone fleet voters, with tokens above floor. An
// operator also calls it for a fleet of which fewer than a quorum can report which
// tokens were granted; floor must then be above every token that was ever granted. A
// quorum of the nodes must be reachable. Voters of this fleet stay as they are; a voter
// of another fleet is an error.
func Init(ctx context.Context, config Config, floor fencing.Token) error {
	config.Topology = nil
	b, err := connect(ctx, config)
	if err != nil {
		return err
	}
	close(b.keeper.done) // it never ran
	defer b.Close(ctx)
	statuses := b.NodeStatuses(ctx)
	for _, s := range statuses {
		if live := s.Report.Live; live != nil && live.Fleet != b.fingerprint {
			return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, s.Addr, scripts.ErrFleet)
		}
	}
	if err := b.checkStandalone(reports(statuses)); err != nil {
		return err
	}
	if known, _ := recovery.StandaloneFloor(reports(statuses)); known > recovery.Jump { // some node reports tokens
		floor = max(floor, known)
	}
	initialised, errs := 0, make([]error, len(b.nodes))
	for i, s := range statuses {
		errs[i] = s.Err
		if s.Err == nil && s.Report.Live == nil {
			errs[i] = b.initNode(ctx, i, floor)
		}
		if errs[i] == nil {
			initialised++
		}
	}
	if initialised < b.quorum {
		return fmt.Errorf("%w: %d of %d Redis nodes were initialised, %d are needed: %w",
			engine.ErrUnavailable, initialised, len(b.nodes), b.quorum, errors.Join(errs...))
	}
	return nil
}

func (b *Backend) initNode(ctx context.Context, node int, floor fencing.Token) error {
	join := engine.NewSessionID().String()
	if err := b.Join(ctx, node, join, standaloneVersion); err != nil {
		return err
	}
	_, err := b.Initialise(ctx, node, recovery.Range{Join: join, Version: standaloneVersion, Floor: floor, Ceiling: fencing.MaxToken})
	return err
}

// nodeRecovery is the recovery of a node by this process.
type nodeRecovery struct {
	join      string
	floor     fencing.Token     // reserved on a quorum; None before that
	snapshots map[int]*snapshot // of the nodes that reserved the floor
}

// recover takes the next step to give an empty node a fresh range. Its floor is above
// everything that a quorum reports after the join, and is reserved on a quorum before
// the node votes. It is reserved when the quarantine begins, so that an append-only
// file has it on disk long before the quarantine ends.
func (k *keeper) recover(ctx context.Context, node int, s NodeStatus) error {
	b := k.backend
	id := s.Addr + " " + s.Identity
	r := k.recoveries[id]
	if r == nil || s.Joining != r.join {
		r = &nodeRecovery{join: engine.NewSessionID().String()}
		if err := scripts.Join(ctx, b.nodes[node], b.fingerprint, standaloneVersion, r.join, b.config.MaxTTL+otherRecovery); err != nil {
			return err
		}
		k.recoveries[id] = r
	}
	if r.floor == fencing.None {
		floor, snapshots, err := b.reserveFloor(ctx, s.Addr)
		if err != nil {
			return err
		}
		r.floor, r.snapshots = floor, snapshots
	}
	if saved := b.saveSnapshots(ctx, r.snapshots); saved < b.quorum {
		return fmt.Errorf("%d of %d Redis nodes have saved the floor, %d are needed", saved, len(b.nodes), b.quorum)
	}
	wait, err := b.Initialise(ctx, node, recovery.Range{Join: r.join, Version: standaloneVersion, Floor: r.floor, Ceiling: fencing.MaxToken,
		Quarantine: b.config.MaxTTL})
	if err != nil {
		return err
	}
	if wait > 0 {
		return fmt.Errorf("quarantine ends in %v", wait)
	}
	delete(k.recoveries, id)
	k.log.recovered(node, s.Addr, uint64(r.floor))
	return nil
}

// reserveFloor returns the floor for an empty node, after a quorum has reserved it: if
// the node is lost again, its next floor must be above this one.
func (b *Backend) reserveFloor(ctx context.Context, addr string) (fencing.Token, map[int]*snapshot, error) {
	all := reports(b.NodeStatuses(ctx))
	floor, _ := recovery.StandaloneFloor(all)
	if _, ok := recovery.StandaloneFloor(b.ofThisFleet(all)); !ok {
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
		if scripts.Reserve(ctx, n, b.fingerprint, floor) == nil {
			mu.Lock()
			defer mu.Unlock()
			snapshots[i] = &snapshot{}
		}
	})
	if len(snapshots) < b.quorum {
		return fencing.None, nil, fmt.Errorf("%w: %d of %d Redis nodes reserved the floor of %s, %d are needed",
			engine.ErrUnavailable, len(snapshots), len(b.nodes), addr, b.quorum)
	}
	return floor, snapshots, nil
}

// saveSnapshots has the nodes write a reserved floor to disk, and returns how many have
// done so. Otherwise a restart from older data could bring an older floor back.
func (b *Backend) saveSnapshots(ctx context.Context, snapshots map[int]*snapshot) (saved int) {
	b.each(func(i int, n *redisconn.Conn) {
		if s := snapshots[i]; s != nil {
			s.advance(ctx, n, b.config.Logger.Warn)
		}
	})
	for _, s := range snapshots {
		if s.done {
			saved++
		}
	}
	return saved
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
