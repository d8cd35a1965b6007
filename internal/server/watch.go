package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// watchPause is how often all locks with a prefix are looked at. Nothing is
// asked of other members for it.
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
		return w.prefix(ctx, *r.Prefix)
	}
	name := fencing.Resource(r.Resource)
	engine, err := s.router.engine(name)
	if err != nil {
		return err
	}
	first := true
	return engine.Watch(ctx, name, func(status lease.Status) {
		w.changed(status)
		if first {
			w.send(&pb.Event{Type: "synced"})
		}
		first = false
		if !s.router.node.Leads() {
			cancel(s.notLeader())
		}
	})
}

// watch is one call of Watch.
type watch struct {
	service *service
	send    func(*pb.Event)
	seen    map[fencing.Resource]lease.Status
}

// prefix looks again and again at all locks with a prefix.
func (w *watch) prefix(ctx context.Context, prefix string) error {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	consistency := raftstore.Linearizable
	for first := true; ; first = false {
		now, err := w.list(ctx, prefix, consistency)
		if err != nil {
			return err
		}
		for name := range w.seen {
			if _, still := now[name]; !still {
				w.changed(lease.Status{Resource: name, Mode: w.service.router.local().modeOf(name)})
				delete(w.seen, name)
			}
		}
		for _, status := range now {
			w.changed(status)
		}
		if first {
			w.send(&pb.Event{Type: "synced"})
		}
		consistency = raftstore.Stale
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !w.service.router.node.Leads() {
			return w.service.notLeader()
		}
	}
}

func (w *watch) list(ctx context.Context, prefix string, c raftstore.Consistency) (map[fencing.Resource]lease.Status, error) {
	found := map[fencing.Resource]lease.Status{}
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
	w.seen[now.Resource] = now
	event := func(kind string, p *lease.Party, place int) {
		w.send(&pb.Event{Type: kind, Resource: string(now.Resource), Mode: wire.ModeText(now.Mode), Party: wire.FromParty(p),
			Waiters: int32(len(now.Waiters)), Place: int32(place)})
	}
	for i := range before.Holders {
		if p := &before.Holders[i]; place(now.Holders, p) == 0 {
			event(w.service.reasons.why(now.Resource, p), p, 0)
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
