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
	// checkInterval is the time between two checks that this member still leads.
	checkInterval = 100 * time.Millisecond
	// pollInterval is the time between two reads of a watched lock in efficiency mode.
	pollInterval = 50 * time.Millisecond
	// listInterval is the time between two lists of the locks in efficiency mode,
	// for a watch on a prefix.
	listInterval = time.Second
)

// watched is what a watch follows: a lock, or the locks with a prefix.
type watched struct {
	match func(fencing.Resource) bool
	// modes reports whether there may be locks in each mode now.
	modes func() (inRaft, inRedis bool)
	// readRaft reports changes in correctness mode: of the named locks as this member has
	// applied them, or of all locks.
	readRaft func(all bool, names []fencing.Resource) error
	// readRedis reports changes in efficiency mode. known is false if the nodes did not
	// answer and the next call tries again.
	readRedis func() (known bool, err error)
	pause     time.Duration // between two calls of readRedis
}

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
	var w watched
	if name := fencing.Resource(r.Resource); r.Prefix != nil {
		w = v.prefix(ctx, *r.Prefix)
	} else if err := name.Validate(); err != nil {
		return err
	} else {
		w = v.lock(ctx, name)
	}
	err := v.follow(ctx, w)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// lock watches one lock. In efficiency mode it polls: Redis does not announce a lock that
// expires.
func (v *view) lock(ctx context.Context, name fencing.Resource) watched {
	return watched{pause: pollInterval,
		modes: func() (inRaft, inRedis bool) {
			inRedis = v.router.ModeOf(name) == engine.Efficiency
			return !inRedis, inRedis
		},
		match: func(other fencing.Resource) bool { return other == name },
		readRaft: func(all bool, _ []fencing.Resource) error {
			consistency := raftstore.Stale
			if all {
				consistency = raftstore.Linearizable
			}
			return v.inspect(ctx, func() (engine.Status, error) { return v.router.Node.Inspect(ctx, name, consistency) })
		},
		readRedis: func() (known bool, err error) {
			backend, err := v.router.Redis.Backend()
			if err != nil {
				return false, err
			}
			err = v.inspect(ctx, func() (engine.Status, error) { return backend.Inspect(ctx, name) })
			if errors.Is(err, engine.ErrUnavailable) {
				return false, nil
			}
			return err == nil, err
		}}
}

// inspect reports the changes of a lock in the status that read returns.
func (v *view) inspect(ctx context.Context, read func() (engine.Status, error)) error {
	asked := v.router.Clock.Now()
	status, err := read()
	if err == nil {
		v.update(ctx, status, asked)
	}
	return err
}

// prefix watches all locks with a prefix. It lists those in efficiency mode.
func (v *view) prefix(ctx context.Context, prefix string) watched {
	return watched{pause: listInterval,
		modes: func() (inRaft, inRedis bool) { return !v.router.Only(engine.Efficiency, prefix), true },
		match: func(name fencing.Resource) bool {
			return strings.HasPrefix(string(name), prefix) && auth.Can(ctx, auth.Read, string(name))
		},
		readRaft: func(all bool, names []fencing.Resource) error {
			if all {
				return v.resync(ctx, engine.Correctness, prefix)
			}
			for _, name := range names {
				if v.router.ModeOf(name) == engine.Efficiency && v.seen[name].Mode != engine.Correctness {
					continue // it migrated, and the list contains it
				}
				err := v.inspect(ctx, func() (engine.Status, error) { return v.router.Node.Inspect(ctx, name, raftstore.Stale) })
				if err != nil {
					return err
				}
			}
			return nil
		},
		readRedis: func() (known bool, err error) {
			err = v.resync(ctx, engine.Efficiency, prefix)
			if v.isSynced && errors.Is(err, engine.ErrUnavailable) {
				return false, nil
			}
			return err == nil, err
		}}
}

// follow reports the current state and then the changes, until ctx ends or there may be locks
// in correctness mode and this member does not lead. It hears of those from the Recorder.
func (v *view) follow(ctx context.Context, w watched) error {
	changes := v.recorder.hub.subscribe(w.match)
	defer changes.cancel()
	known, leads := true, false // leads: the state in correctness mode was read
	var asked engine.Instant    // when the Redis nodes were read
	for {
		pause := w.pause
		inRaft, inRedis := w.modes()
		if inRaft {
			pause = checkInterval
			if leads {
				if err := v.router.RequireLeader(); err != nil {
					return err
				}
			}
			if names, all := changes.take(); !leads || all || len(names) > 0 {
				if err := w.readRaft(!leads || all, slices.Sorted(maps.Keys(names))); err != nil {
					return err
				}
			}
		}
		leads = inRaft
		switch now := v.router.Clock.Now(); {
		case !inRedis:
			known = true
		case asked.IsZero() || now.Since(asked) >= w.pause:
			var err error
			if known, err = w.readRedis(); err != nil {
				return err
			}
			asked = now
		}
		if known {
			v.synced()
		}
		select {
		case <-changes.wake:
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// resync compares all locks of a mode with a prefix to those that were reported. A lock that was reported in its
// mode of before, and has migrated to this one without its lease, is compared too.
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
		reported := v.seen[name].Mode
		if _, still := now[name]; !still && (reported == mode || v.router.ModeOf(name) == mode) {
			v.update(ctx, engine.Status{Resource: name, Mode: reported}, asked)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		v.update(ctx, now[name], asked)
	}
	return nil
}
