package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

const (
	// checkInterval is the time between two checks that this member still leads
	// and that the lock has the same mode.
	checkInterval = 100 * time.Millisecond
	// pollInterval is the time between two reads of a watched lock in efficiency mode.
	pollInterval = 50 * time.Millisecond
	// listInterval is the time between two lists of the locks in efficiency mode,
	// for a watch on a prefix.
	listInterval = time.Second
)

// errMigrated reports that a watched lock has another mode now.
var errMigrated = errors.New("the lock has another mode")

// Watch sends the changes of one lock, or of all locks with a prefix that the caller may
// read.
func (s *Service) Watch(r *pb.WatchRequest, stream pb.LeaseService_WatchServer) error {
	if (r.Resource == "") == (r.Prefix == nil) {
		return fmt.Errorf("%w: watch needs either resource or prefix", engine.ErrInvalid)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	v := &view{Service: s, seen: map[fencing.Resource]engine.Status{}, askedAt: map[fencing.Resource]engine.Instant{},
		send: func(e *pb.Event) {
			if err := stream.Send(e); err != nil {
				cancel(err)
			}
		}}
	if r.Prefix != nil {
		return v.watchPrefix(ctx, *r.Prefix)
	}
	return v.watchLock(ctx, fencing.Resource(r.Resource))
}

// watchLock watches one lock, in the mode that it has.
func (v *view) watchLock(ctx context.Context, name fencing.Resource) error {
	for {
		backend, mode, err := v.router.Engine(name)
		if err != nil {
			return err
		}
		if mode == engine.Efficiency {
			err = v.watchInRedis(ctx, name, backend)
		} else {
			err = v.watchInRaft(ctx, name)
		}
		if !errors.Is(err, errMigrated) {
			return err
		}
	}
}

// watchInRedis watches a lock in efficiency mode. It polls: Redis does not announce a lock
// that expires.
func (v *view) watchInRedis(ctx context.Context, name fencing.Resource, backend engine.Backend) error {
	for {
		if err := v.inspect(ctx, name, backend); err != nil {
			return err
		}
		if err := engine.Sleep(ctx, pollInterval); err != nil {
			return err
		}
		if now, _, _ := v.router.Engine(name); now != backend {
			return errMigrated
		}
	}
}

// inspect reports the changes of a lock in efficiency mode. Nodes that do not answer are
// not an error: the next call tries again.
func (v *view) inspect(ctx context.Context, name fencing.Resource, backend engine.Backend) error {
	asked := v.router.Clock.Now()
	status, err := backend.Inspect(ctx, name)
	switch {
	case err == nil:
		v.update(ctx, status, asked)
		v.synced()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, engine.ErrUnavailable):
		return err
	}
	return nil
}

// watchInRaft watches a lock in correctness mode, on the leader.
func (v *view) watchInRaft(ctx context.Context, name fencing.Resource) error {
	check := func() error {
		if v.router.ModeOf(name) == engine.Efficiency {
			return errMigrated
		}
		return nil
	}
	read := func(all bool, _ []fencing.Resource) error {
		consistency := raftstore.Stale
		if all {
			consistency = raftstore.Linearizable
		}
		asked := v.router.Clock.Now()
		status, err := v.router.Node.Inspect(ctx, name, consistency)
		if err == nil {
			v.update(ctx, status, asked)
		}
		return err
	}
	return v.follow(ctx, func(other fencing.Resource) bool { return other == name }, check, read)
}

// watchPrefix watches all locks with a prefix. It gets the changes of locks in
// correctness mode from the Recorder, on the leader, and lists those in efficiency mode.
func (v *view) watchPrefix(ctx context.Context, prefix string) error {
	if v.router.Only(engine.Efficiency, prefix) {
		return v.pollRedis(ctx, prefix)
	}
	listedAt := engine.Instant{}
	check := func() error {
		now := v.router.Clock.Now()
		if !listedAt.IsZero() && now.Since(listedAt) < listInterval {
			return nil
		}
		listedAt = now
		err := v.resync(ctx, engine.Efficiency, prefix)
		if v.isSynced && errors.Is(err, engine.ErrUnavailable) {
			return nil // the next check tries again
		}
		return err
	}
	read := func(all bool, names []fencing.Resource) error {
		if all {
			return v.resync(ctx, engine.Correctness, prefix)
		}
		for _, name := range names {
			if v.router.ModeOf(name) == engine.Efficiency && len(v.seen[name].Holders)+len(v.seen[name].Waiters) == 0 {
				continue // it migrated, and the list contains it
			}
			asked := v.router.Clock.Now()
			status, err := v.router.Node.Inspect(ctx, name, raftstore.Stale)
			if err != nil {
				return err
			}
			v.update(ctx, status, asked)
		}
		return nil
	}
	match := func(name fencing.Resource) bool {
		return strings.HasPrefix(string(name), prefix) && auth.Can(ctx, auth.Read, string(name))
	}
	return v.follow(ctx, match, check, read)
}

// pollRedis watches a prefix whose locks are all in efficiency mode. It needs no
// leader.
func (v *view) pollRedis(ctx context.Context, prefix string) error {
	for v.router.Only(engine.Efficiency, prefix) {
		if err := v.resync(ctx, engine.Efficiency, prefix); err != nil &&
			(!v.isSynced || !errors.Is(err, engine.ErrUnavailable)) {
			return err
		}
		v.synced()
		if err := engine.Sleep(ctx, listInterval); err != nil {
			return err
		}
	}
	return v.watchPrefix(ctx, prefix)
}

// follow reports the current state and then the changes of locks in correctness
// mode, until ctx ends or this member does not lead. It calls check periodically,
// and read with the locks that have changed.
func (v *view) follow(ctx context.Context, match func(fencing.Resource) bool, check func() error,
	read func(all bool, names []fencing.Resource) error) error {
	subscription := v.recorder.hub.subscribe(match)
	defer subscription.cancel()
	if err := read(true, nil); err != nil {
		return err
	}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		if err := check(); err != nil {
			return err
		}
		v.synced()
		select {
		case <-subscription.wake:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := v.router.RequireLeader(); err != nil {
			return err
		}
		names, all := subscription.take()
		if len(names) > 0 || all {
			if err := read(all, slices.Sorted(maps.Keys(names))); err != nil {
				return err
			}
		}
	}
}

// resync compares all locks of a mode with a prefix to those that were reported.
func (v *view) resync(ctx context.Context, mode engine.Mode, prefix string) error {
	asked, now := v.router.Clock.Now(), map[fencing.Resource]engine.Status{}
	for after := fencing.Resource(""); ; {
		page, err := v.list(ctx, mode, prefix, after, raftstore.MaxPage)
		if err != nil {
			return err
		}
		for _, status := range page {
			if auth.Can(ctx, auth.Read, string(status.Resource)) {
				now[status.Resource] = status
			}
		}
		if len(page) < raftstore.MaxPage {
			break
		}
		after = page[len(page)-1].Resource
	}
	for _, name := range slices.Sorted(maps.Keys(v.seen)) {
		if _, still := now[name]; !still && v.seen[name].Mode == mode {
			v.update(ctx, engine.Status{Resource: name, Mode: mode}, asked)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		v.update(ctx, now[name], asked)
	}
	return nil
}
