package server

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
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// watchPause is how often a watcher checks that this member still leads, and
	// that the lock has the same mode.
	watchPause = 100 * time.Millisecond
	// listPause is how often a watch by prefix lists the locks in efficiency mode.
	listPause = time.Second
	// expirySlack is how much earlier than its time left a lease may expire, as
	// clocks and rounding go.
	expirySlack = 100 * time.Millisecond
)

// Watch sends what happens to a lock, or to all with a prefix.
func (s *service) Watch(r *pb.WatchRequest, server pb.LeaseService_WatchServer) error {
	return s.watch(server.Context(), r, server.Send)
}

// watch is Watch without gRPC.
func (s *service) watch(ctx context.Context, r *pb.WatchRequest, send func(*pb.Event) error) error {
	if (r.Resource == "") == (r.Prefix == nil) {
		return fmt.Errorf("%w: watch needs resource or prefix, and not both", engine.ErrInvalid)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{service: s, seen: map[fencing.Resource]engine.Status{}, when: map[fencing.Resource]engine.Instant{}, send: func(e *pb.Event) {
		if err := send(e); err != nil {
			cancel(err)
		}
	}}
	if r.Prefix != nil {
		return w.prefix(ctx, *r.Prefix)
	}
	return w.lock(ctx, fencing.Resource(r.Resource))
}

// watch is one call of Watch.
type watch struct {
	service *service
	send    func(*pb.Event)
	seen    map[fencing.Resource]engine.Status
	when    map[fencing.Resource]engine.Instant // when seen was told
	synced  bool
}

// sync says that everything was told that was there when the watch began.
func (w *watch) sync() {
	if !w.synced {
		w.synced = true
		w.send(&pb.Event{Type: "synced"})
	}
}

// errMoved: a lock has another mode now.
var errMoved = errors.New("the lock has another mode")

// lock watches one lock, in the mode that it has.
func (w *watch) lock(ctx context.Context, name fencing.Resource) error {
	for {
		backend, mode, err := w.service.router.engine(name)
		if err != nil {
			return err
		}
		if mode == engine.Efficiency {
			err = w.lockInRedis(ctx, name, backend)
		} else {
			err = w.lockInRaft(ctx, name)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

// lockInRedis watches a lock in efficiency mode.
func (w *watch) lockInRedis(ctx context.Context, name fencing.Resource, backend engine.Backend) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		tick := time.NewTicker(watchPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if now, _, _ := w.service.router.engine(name); now != backend {
					cancel(errMoved)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return backend.Watch(ctx, name, func(status engine.Status) {
		w.changed(ctx, status)
		w.sync()
	})
}

// lockInRaft watches a lock in correctness mode, at the leader.
func (w *watch) lockInRaft(ctx context.Context, name fencing.Resource) error {
	look := func(c raftstore.Consistency) error {
		status, err := w.service.router.node.Inspect(ctx, name, c)
		if err == nil {
			w.changed(ctx, status)
		}
		return err
	}
	return w.follow(ctx, func(other fencing.Resource) bool { return other == name }, func() error {
		if w.service.router.modeOf(name) == engine.Efficiency {
			return errMoved
		}
		return nil
	}, func(all bool, _ []fencing.Resource) error {
		if all {
			return look(raftstore.Linearizable)
		}
		return look(raftstore.Stale)
	})
}

// prefix watches all locks with a prefix: those in correctness mode by the events
// of the machine, at the leader, those in efficiency mode by listing them.
func (w *watch) prefix(ctx context.Context, prefix string) error {
	if w.service.router.efficient(prefix) {
		return w.poll(ctx, prefix)
	}
	node := w.service.router.node
	last := engine.Instant{}
	return w.follow(ctx, func(name fencing.Resource) bool { return strings.HasPrefix(string(name), prefix) }, func() error {
		now := w.service.router.clock.Now()
		if !last.IsZero() && now.Since(last) < listPause {
			return nil
		}
		last = now
		err := w.resync(ctx, engine.Efficiency, prefix)
		if w.synced && errors.Is(err, engine.ErrUnavailable) {
			return nil // the next look tries again
		}
		return err
	}, func(all bool, names []fencing.Resource) error {
		if all {
			return w.resync(ctx, engine.Correctness, prefix)
		}
		for _, name := range names {
			if w.service.router.modeOf(name) == engine.Efficiency && len(w.seen[name].Holders)+len(w.seen[name].Waiters) == 0 {
				continue // it moved, and the list has it
			}
			status, err := node.Inspect(ctx, name, raftstore.Stale)
			if err != nil {
				return err
			}
			w.changed(ctx, status)
		}
		return nil
	})
}

// poll watches a prefix whose locks are all in efficiency mode. It needs no leader.
func (w *watch) poll(ctx context.Context, prefix string) error {
	tick := time.NewTicker(listPause)
	defer tick.Stop()
	for w.service.router.efficient(prefix) {
		if err := w.resync(ctx, engine.Efficiency, prefix); err != nil && (!w.synced || !errors.Is(err, engine.ErrUnavailable)) {
			return err
		}
		w.sync()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return w.prefix(ctx, prefix)
}

// follow tells what there is, then what has changed in correctness mode, until ctx
// ends or this member does not lead. often is called again and again.
func (w *watch) follow(ctx context.Context, match func(fencing.Resource) bool, often func() error, look func(all bool, names []fencing.Resource) error) error {
	follower := w.service.config.Feed.follow(match)
	defer follower.stop()
	if err := look(true, nil); err != nil {
		return err
	}
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		if err := often(); err != nil {
			return err
		}
		w.sync()
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
		if len(names) > 0 || all {
			if err := look(all, slices.Sorted(maps.Keys(names))); err != nil {
				return err
			}
		}
	}
}

// resync compares all locks of a mode with a prefix to what was told.
func (w *watch) resync(ctx context.Context, mode engine.Mode, prefix string) error {
	now := map[fencing.Resource]engine.Status{}
	for after := fencing.Resource(""); ; {
		page, err := w.service.list(ctx, mode, prefix, after, raftstore.MaxPage)
		if err != nil {
			return err
		}
		for _, status := range page {
			now[status.Resource] = status
		}
		if len(page) < raftstore.MaxPage {
			break
		}
		after = page[len(page)-1].Resource
	}
	for _, name := range slices.Sorted(maps.Keys(w.seen)) {
		if _, still := now[name]; !still && w.seen[name].Mode == mode {
			w.changed(ctx, engine.Status{Resource: name, Mode: mode})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		w.changed(ctx, now[name])
	}
	return nil
}

// changed sends the difference to what was told before.
func (w *watch) changed(ctx context.Context, now engine.Status) {
	before := w.seen[now.Resource]
	if w.seen[now.Resource] = now; len(now.Holders)+len(now.Waiters) == 0 {
		delete(w.seen, now.Resource)
	}
	event := func(kind string, p *engine.Party, place int) {
		w.send(&pb.Event{Type: kind, Resource: string(now.Resource), Mode: wire.ModeText(now.Mode), Party: wire.FromParty(p),
			Waiters: int32(len(now.Waiters)), Place: int32(place)})
	}
	for i := range before.Holders {
		if p := &before.Holders[i]; place(now.Holders, p) == 0 {
			event(w.ended(ctx, now.Resource, before.Mode, p), p, 0)
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
	if w.when[now.Resource] = w.service.router.clock.Now(); len(now.Holders)+len(now.Waiters) == 0 {
		delete(w.when, now.Resource)
	}
}

// ended returns how a holder's lease ended. The Redis nodes say "expired" also of a
// lease whose end they have forgotten.
func (w *watch) ended(ctx context.Context, name fencing.Resource, mode engine.Mode, p *engine.Party) string {
	if mode != engine.Efficiency {
		return w.service.config.Feed.ended.reason(p)
	}
	backend, err := w.service.router.redis.Backend()
	if err != nil {
		return "ended"
	}
	reason, err := backend.Ended(ctx, name, p.Session, p.Nonce)
	if err != nil || reason == "expired" && w.service.router.clock.Now().Since(w.when[name]) < p.TTL-expirySlack {
		return "ended"
	}
	return reason
}

// place returns where the same attempt is in a list, from 1; 0 if it is not. A
// waiter of another process in efficiency mode has only a name.
func place(list []engine.Party, p *engine.Party) int {
	for i := range list {
		if list[i].Session == p.Session && list[i].Nonce == p.Nonce && (p.Nonce != 0 || list[i].Holder == p.Holder) {
			return i + 1
		}
	}
	return 0
}

// gone reports whether a watch has ended because its caller has.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
