package lease

import (
	"context"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Lease is what a caller holds: the right to use a resource for a while, and
// the token to prove it with. All methods may be called concurrently.
//
// There is no method that says whether the lease is held: by the time the
// caller acts on the answer it may be wrong. Pass Token with every write.
type Lease struct {
	hold   *hold
	ctx    context.Context
	cancel context.CancelCauseFunc

	released bool // guarded by the keeper's mu
}

// hold is one grant. Its leases share it: one, or several of a re-entrant
// holder.
type hold struct {
	keeper  *keeper
	nonce   engine.Nonce
	request engine.Request
	named   fencing.Resource // the one that the caller asked for by name
	grant   engine.Grant
	since   engine.Instant // when it was adopted
	entry   *entry         // nil if not re-entrant

	// Guarded by the keeper's mu.
	sent    engine.Instant // its time counts from here, unless settled
	round   uint64         // the last round of keep-alives that did not cover it
	settled bool           // covered by a keep-alive: it lives as long as the session
	ended   error          // why it is over, nil while it is held
	leases  []*Lease
}

func newLease(ctx context.Context, h *hold) *Lease {
	l := &Lease{hold: h}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.leases = append(h.leases, l)
	return l
}

// Token is the fencing token to pass with every write.
func (l *Lease) Token() fencing.Token { return l.hold.grant.Token }

// Resource is the name that was acquired; of a set, the one named first.
func (l *Lease) Resource() fencing.Resource { return l.hold.named }

// Resources are all the names that were acquired, in ascending order.
func (l *Lease) Resources() []fencing.Resource { return slices.Clone(l.hold.request.Resources) }

// Slot is the number of the permit, from 1, or 0 if this is no permit.
func (l *Lease) Slot() int { return l.hold.grant.Slot }

// GateResource is the name to give to a gate along with Token: the resource, or
// for a permit the name of its slot, since tokens of permits that are held side
// by side would fence each other out under one name. Of a set it is the one
// named first; guard what belongs to the others under their own names.
func (l *Lease) GateResource() fencing.Resource {
	if slot := l.Slot(); slot != 0 {
		return l.hold.named.Slot(slot)
	}
	return l.hold.named
}

// Mode is the mode of the lock.
func (l *Lease) Mode() engine.Mode { return l.hold.grant.Mode }

// Holder is the name under which others see this lease.
func (l *Lease) Holder() string { return l.hold.request.Holder }

// Context ends when the lease is lost, released or past its deadline;
// context.Cause then says which. It carries the values of the context given to
// Acquire, not its end. After a suspend of the machine it may end up to a
// second late; Err does not.
func (l *Lease) Context() context.Context { return l.ctx }

// Done is closed when Context ends.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err is nil as long as nothing says that the lease has ended, and then why:
// ErrReleased, ErrClosed, or an error matching ErrLost. A nil is no permission
// to write; that is what Token is for.
func (l *Lease) Err() error { return l.hold.keeper.check(l) }

// Deadline is when the lease ends if it is not renewed, as far as is known now:
// the present time and what is left by the more pessimistic clock.
func (l *Lease) Deadline() time.Time {
	k := l.hold.keeper
	now := k.client.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	return now.Time().Add(now.Until(k.deadline(l.hold)))
}

// Renew prolongs the lease now, and with it the others of its session. Only
// leases without automatic renewal need it.
func (l *Lease) Renew(ctx context.Context) error { return l.hold.keeper.renewLease(ctx, l) }

// Release gives the lease back. Its Context ends first, then the service is
// told, also if ctx has ended: ctx only lends its values, and the call takes a
// few seconds at most. If the service cannot be told Release returns why, and
// it goes on trying in the background. Released twice, or after the lease was
// lost, it returns what Err returns.
func (l *Lease) Release(ctx context.Context) error { return l.hold.keeper.releaseLease(ctx, l) }

func (h *hold) event(now engine.Instant, err error) Event {
	return Event{Resources: h.request.Resources, Holder: h.request.Holder, Token: h.grant.Token,
		Mode: h.grant.Mode, Elapsed: now.Since(h.since), Err: err}
}
