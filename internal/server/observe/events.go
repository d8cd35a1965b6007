package observe

import (
	"context"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// expiryTolerance is how much earlier than its TTL a lease may seem to expire,
// because of clock differences and rounding.
const expiryTolerance = 100 * time.Millisecond

// view is the state of locks as one watch has reported it to its caller.
type view struct {
	*Service
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
	event := func(kind Kind, p *engine.Party, place int) {
		v.record(now, kind, p)
		v.send(&pb.Event{Type: kind.String(), Resource: string(now.Resource), Mode: wire.ModeText(now.Mode),
			Party:   visible(ctx, now.Resource, *p, v.router.Clock.Now().Time()),
			Waiters: int32(len(now.Waiters)), Place: int32(place)})
	}
	for i := range before.Holders {
		if p := &before.Holders[i]; place(now.Holders, p) == 0 {
			event(v.reason(ctx, now.Resource, before.Mode, p), p, 0)
		}
	}
	for i := range before.Waiters {
		if p := &before.Waiters[i]; place(now.Waiters, p) == 0 && place(now.Holders, p) == 0 {
			event(Cancelled, p, 0)
		}
	}
	for i := range now.Holders {
		if p := &now.Holders[i]; place(before.Holders, p) == 0 {
			event(Granted, p, 0)
		}
	}
	for i := range now.Waiters {
		if p := &now.Waiters[i]; place(before.Waiters, p) == 0 {
			event(Waiting, p, i+1)
		}
	}
	if len(now.Holders)+len(now.Waiters) == 0 {
		delete(v.seen, now.Resource)
		delete(v.askedAt, now.Resource)
		return
	}
	v.seen[now.Resource], v.askedAt[now.Resource] = now, asked
}

// record adds an event of a lock in efficiency mode to its history. The Recorder sees
// events in correctness mode itself. A state that the watch begins with is not an event,
// unless its time is known.
func (v *view) record(now engine.Status, kind Kind, p *engine.Party) {
	if now.Mode != engine.Efficiency {
		return
	}
	at := time.Time{}
	if begins := kind == Granted || kind == Waiting; begins {
		at = p.Since
		if at.IsZero() && !v.isSynced {
			return
		}
	}
	v.recorder.Add(now.Resource, kind, p, at)
}

// reason returns why a holder's lease ended. The Redis nodes report "expired" also for a
// lease whose end they have forgotten; reason returns Ended if the lease cannot have expired
// yet. The time that was left counts from before the nodes were asked: an answer may be late,
// and the lease has then expired sooner after it.
func (v *view) reason(ctx context.Context, name fencing.Resource, mode engine.Mode, p *engine.Party) Kind {
	if mode != engine.Efficiency {
		return v.recorder.reason(name, p)
	}
	text, err := v.ended(ctx, name, p)
	kind := KindOf(text)
	if err != nil || kind == 0 || kind == Expired && v.router.Clock.Now().Since(v.askedAt[name]) < p.TTL-expiryTolerance {
		return Ended
	}
	return kind
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
