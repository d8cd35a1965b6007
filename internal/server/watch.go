package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// watchPause is how often one who watches looks whether this member still leads.
const watchPause = 100 * time.Millisecond

// Watch tells what happens to a lock, or to all with a prefix.
func (s *service) Watch(r *pb.WatchRequest, server pb.LeaseService_WatchServer) error {
	return s.watch(server.Context(), r, server.Send)
}

// watch is Watch without gRPC.
func (s *service) watch(ctx context.Context, r *pb.WatchRequest, send func(*pb.Event) error) error {
	if (r.Resource == "") == (r.Prefix == nil) {
		return fmt.Errorf("%w: watch needs resource or prefix, and not both", lease.ErrInvalid)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{service: s, seen: map[fencing.Resource]lease.Status{}, send: func(e *pb.Event) {
		if err := send(e); err != nil {
			cancel(err)
		}
	}}
	if r.Prefix != nil {
		prefix := *r.Prefix
		return w.follow(ctx, func(name fencing.Resource) bool { return strings.HasPrefix(string(name), prefix) },
			func() error { return w.resync(ctx, prefix) })
	}
	name := fencing.Resource(r.Resource)
	engine, err := s.router.engine(name)
	if err != nil {
		return err
	}
	if engine == lease.Backend(s.router.redis) {
		return w.fast(ctx, name)
	}
	return w.follow(ctx, func(other fencing.Resource) bool { return other == name }, func() error { return w.look(ctx, name, raftstore.Linearizable) })
}

// watch is one call of Watch.
type watch struct {
	service *service
	send    func(*pb.Event)
	seen    map[fencing.Resource]lease.Status
}

// follow tells what there is, then looks at what has changed, until ctx ends.
func (w *watch) follow(ctx context.Context, match func(fencing.Resource) bool, resync func() error) error {
	follower := w.service.config.Feed.follow(match)
	defer follower.stop()
	if err := resync(); err != nil {
		return err
	}
	w.send(&pb.Event{Type: "synced"})
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		select {
		case <-follower.wake:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !w.service.router.node.Leads() {
			return w.service.notLeader()
		}
		names, all := follower.take()
		if all {
			if err := resync(); err != nil {
				return err
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if err := w.look(ctx, name, raftstore.Stale); err != nil {
				return err
			}
		}
	}
}

// look tells what has changed about a lock.
func (w *watch) look(ctx context.Context, name fencing.Resource, c raftstore.Consistency) error {
	if checkName(name) != nil {
		return nil
	}
	status, err := w.service.router.node.Inspect(ctx, name, c)
	if err != nil {
		return err
	}
	if len(status.Holders)+len(status.Waiters) == 0 {
		if known := w.service.book.status(name); len(known.Holders)+len(known.Waiters) > 0 || w.seen[name].Mode == lease.Efficiency {
			status = known
		}
	}
	w.changed(status)
	return nil
}

// resync looks at all locks with a prefix.
func (w *watch) resync(ctx context.Context, prefix string) error {
	now, err := w.list(ctx, prefix, raftstore.Linearizable)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.seen)) {
		if _, still := now[name]; !still {
			w.changed(lease.Status{Resource: name, Mode: w.seen[name].Mode})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		w.changed(now[name])
	}
	return nil
}

// fast watches a lock of the efficiency mode: Redis knows who holds it, this
// member who waits.
func (w *watch) fast(ctx context.Context, name fencing.Resource) error {
	ctx, cancel := context.WithCancel(ctx)
	statuses, over := make(chan lease.Status), make(chan error, 1)
	go func() {
		over <- w.service.router.redis.Watch(ctx, name, func(status lease.Status) {
			select {
			case statuses <- status:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { cancel(); <-over }()
	follower := w.service.config.Feed.follow(func(other fencing.Resource) bool { return other == name })
	defer follower.stop()
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	var last lease.Status
	for synced := false; ; {
		select {
		case last = <-statuses:
		case <-follower.wake: // who has stopped waiting may hold it now
			if status, err := w.service.router.redis.Inspect(ctx, name); err == nil {
				last = status
			}
		case <-tick.C:
		case err := <-over:
			over <- err
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !w.service.router.node.Leads() {
			return w.service.notLeader()
		}
		if last.Resource == "" {
			continue // it has not been told yet who holds
		}
		last.Waiters = w.service.book.status(name).Waiters
		w.changed(last)
		if !synced {
			w.send(&pb.Event{Type: "synced"})
			synced = true
		}
	}
}

func (w *watch) list(ctx context.Context, prefix string, c raftstore.Consistency) (map[fencing.Resource]lease.Status, error) {
	found := map[fencing.Resource]lease.Status{}
	for _, name := range w.service.book.names(prefix, "", math.MaxInt) {
		found[name] = w.service.book.status(name)
	}
	for after := fencing.Resource(""); ; {
		page, err := w.service.router.node.List(ctx, prefix, after, raftstore.MaxPage, c)
		if err != nil {
			return nil, err
		}
		for _, status := range page {
			if checkName(status.Resource) == nil {
				found[status.Resource] = status
			}
		}
		if len(page) < raftstore.MaxPage {
			return found, nil
		}
		after = page[len(page)-1].Resource
	}
}

// changed tells the difference to what was told before.
func (w *watch) changed(now lease.Status) {
	before := w.seen[now.Resource]
	if w.seen[now.Resource] = now; len(now.Holders)+len(now.Waiters) == 0 {
		delete(w.seen, now.Resource)
	}
	event := func(kind string, p *lease.Party, place int) {
		w.send(&pb.Event{Type: kind, Resource: string(now.Resource), Mode: wire.ModeText(now.Mode), Party: wire.FromParty(p),
			Waiters: int32(len(now.Waiters)), Place: int32(place)})
	}
	for i := range before.Holders {
		if p := &before.Holders[i]; place(now.Holders, p) == 0 {
			event(w.service.reasons.why(now.Resource, before.Mode, p), p, 0)
		}
	}
	for i := range before.Waiters {
		if p := &before.Waiters[i]; place(now.Waiters, p) == 0 && place(now.Holders, p) == 0 {
			event("cancelled", p, 0)
		}
	}
	for i := range now.Holders {
		if p := &now.Holders[i]; place(before.Holders, p) == 0 {
			event("granted", p, 0)
		}
	}
	for i := range now.Waiters {
		if p := &now.Waiters[i]; place(before.Waiters, p) == 0 {
			event("waiting", p, i+1)
		}
	}
}

// place is where the same attempt is in a list, from 1; 0 if it is not.
func place(list []lease.Party, p *lease.Party) int {
	for i := range list {
		if list[i].Session == p.Session && list[i].Nonce == p.Nonce {
			return i + 1
		}
	}
	return 0
}

// ended reports whether a watch has ended because its caller has.
func ended(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
