package watch

import (
	"context"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/history"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// expiryTolerance is how much earlier than its TTL a lease may seem to expire,
// because of clock differences and rounding.
const expiryTolerance = 100 * time.Millisecond

// view is the state of locks as one watch has reported it to its caller.
type view struct {
	*Watcher
	send     func(*pb.Event)
	seen     map[fencing.Resource]engine.Status
	askedAt  map[fencing.Resource]engine.Instant // when the state in seen was asked for
	isSynced bool
}

// synced reports, once, that the caller knows the state as of the start of the
// watch.
func (v *view) synced() {
	if !v.isSynced {
		v.isSynced = true
		v.send(&pb.Event{Type: "synced"})
	}
}

// update sends the events that lead from the reported status of a lock to now, which was
// asked for at asked.
func (v *view) update(ctx context.Context, now engine.Status, asked engine.Instant) {
	before := v.seen[now.Resource]
	event := func(kind string, p *engine.Party, place int) {
		v.record(now, kind, p)
		visible := auth.Visible(ctx, engine.Status{Resource: now.Resource, Holders: []engine.Party{*p}}).Holders[0]
		v.send(&pb.Event{Type: kind, Resource: string(now.Resource), Mode: wire.ModeText(now.Mode), Party: wire.FromParty(&visible, v.router.Clock.Now().Time()),
			Waiters: int32(len(now.Waiters)), Place: int32(place)})
	}
	for i := range before.Holders {
		if p := &before.Holders[i]; place(now.Holders, p) == 0 {
			event(v.reason(ctx, now.Resource, before.Mode, p), p, 0)
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
	if len(now.Holders)+len(now.Waiters) == 0 {
		delete(v.seen, now.Resource)
		delete(v.askedAt, now.Resource)
		return
	}
	v.seen[now.Resource], v.askedAt[now.Resource] = now, asked
}

// record adds an event of a lock in efficiency mode to its history. The Hub reports those
// in correctness mode. A state that the watch begins with is no event, unless its time is
// known.
func (v *view) record(now engine.Status, kind string, p *engine.Party) {
	if now.Mode != engine.Efficiency {
		return
	}
	at := time.Time{}
	if begins := kind == "granted" || kind == "waiting"; begins {
		at = p.Since
		if at.IsZero() && !v.isSynced {
			return
		}
	}
	v.hub.Recorder.Add(now.Resource, history.KindOf(kind), p, at)
}

// reason returns why a holder's lease ended, as an event type. The Redis nodes
// report "expired" also for a lease whose end they have forgotten; reason returns
// "ended" if the lease cannot have expired yet. The time that was left counts from before
// the nodes were asked: an answer may be late, and the lease has then expired sooner
// after it.
func (v *view) reason(ctx context.Context, name fencing.Resource, mode engine.Mode, p *engine.Party) string {
	if mode != engine.Efficiency {
		return v.hub.reason(p)
	}
	reason, err := v.ended(ctx, name, p)
	if err != nil || reason == "expired" && v.router.Clock.Now().Since(v.askedAt[name]) < p.TTL-expiryTolerance {
		return unknownReason
	}
	return reason
}

// place returns the position of an attempt in a list, from 1, or 0 if the list does
// not contain it. A waiter of another process in efficiency mode has a name only.
func place(list []engine.Party, p *engine.Party) int {
	for i := range list {
		if list[i].Session == p.Session && list[i].Nonce == p.Nonce && (p.Nonce != 0 || list[i].Holder == p.Holder) {
			return i + 1
		}
	}
	return 0
}
