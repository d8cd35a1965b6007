package lease

import (
	"context"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// Lease is a lock that the caller holds for a time, with the token that proves it.
// All methods may be called concurrently.
//
// There is no method that reports whether the lease is held: the answer may be wrong
// by the time the caller acts on it. Pass Token with every write.
type Lease struct {
	grant  *heldGrant
	values context.Context // of the context given to Acquire

	// Guarded by the Client's mu.
	released bool
	ctx      context.Context // nil until the caller asks for it
	cancel   context.CancelCauseFunc
}

// heldGrant is a grant of the service. Its leases share it: one, or several of a
// re-entrant holder.
type heldGrant struct {
	clientcore.Grant // guarded by the Client's mu, except for Held and Since

	keepAlive *keepAlive
	kind      Kind
	permits   int
	named     fencing.Resource // the one that the caller named first
	mode      Mode
	slot      int
	record    *holderRecord // nil if not re-entrant

	signatures signatures

	// Guarded by the Client's mu.
	leases []*Lease
	first  Lease     // most grants have one lease
	room   [1]*Lease // for leases
}

// add makes l a lease of the grant. The caller holds mu.
func (g *heldGrant) add(l *Lease, values context.Context) *Lease {
	l.grant, l.values = g, values
	if g.leases == nil {
		g.leases = g.room[:0]
	}
	g.leases = append(g.leases, l)
	return l
}

// cause returns why the lease has ended, nil if it has not. The caller holds mu.
func (l *Lease) cause() error {
	if l.released {
		return engine.ErrReleased
	}
	return l.grant.Grant.Err()
}

// cancelLeases ends the contexts of the leases of an ended grant, and returns the leases.
func (g *heldGrant) cancelLeases() []*Lease {
	c := g.keepAlive.client
	c.mu.Lock()
	leases, cause := g.leases, g.Grant.Err()
	g.leases = nil
	var cancel []context.CancelCauseFunc // of the contexts that callers have asked for
	for _, l := range leases {
		if l.cancel != nil {
			cancel = append(cancel, l.cancel)
		}
	}
	c.mu.Unlock()
	for _, f := range cancel {
		f(cause)
	}
	c.holders.remove(g)
	return leases
}

// Token returns the fencing token to pass with every write.
func (l *Lease) Token() fencing.Token { return l.grant.Held.Token }

// Resource returns the name that was acquired; for a set, the one that was named
// first.
func (l *Lease) Resource() fencing.Resource { return l.grant.named }

// Resources returns all names that were acquired, in ascending order.
func (l *Lease) Resources() []fencing.Resource { return slices.Clone(l.grant.Held.Resources) }

// Slot returns the number of the permit, from 1, or 0 if the lease is not a permit.
func (l *Lease) Slot() int { return l.grant.slot }

// GateResource returns the name to give to a gate along with Token. It is the
// resource, or for a permit the name of its slot: permits are held at the same
// time, and under one name their tokens would fence each other out. For a set it is
// the name that was named first; guard data of the other names under those names.
func (l *Lease) GateResource() fencing.Resource {
	if slot := l.Slot(); slot != 0 {
		return l.grant.named.Slot(slot)
	}
	return l.grant.named
}

// Mode returns the mode of the lock.
func (l *Lease) Mode() Mode { return l.grant.mode }

// Holder returns the name that others see as the holder of the lock.
func (l *Lease) Holder() string { return l.grant.Held.Holder }

// Context returns a context that ends when the lease is lost, released or past its
// deadline; context.Cause says which. It carries the values of the context given to
// Acquire but not its cancellation. After the machine was suspended it may end up
// to a second late; Err does not.
func (l *Lease) Context() context.Context {
	mu := &l.grant.keepAlive.client.mu
	mu.Lock()
	defer mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.values))
		if cause := l.cause(); cause != nil {
			l.cancel(cause)
		}
	}
	return l.ctx
}

// Done returns a channel that is closed when Context ends.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the client does not know that the lease has ended. Then it
// returns ErrReleased, ErrClosed, or an error that matches ErrLost. A nil does not
// permit a write; only a gate that checks Token does.
func (l *Lease) Err() error {
	k := l.grant.keepAlive
	c := k.client
	now := c.clock.Now() // timers may be late
	c.mu.Lock()
	expired := k.check(now, l.grant)
	err := l.cause()
	c.mu.Unlock()
	c.reportLost(now, expired)
	return err
}

// Deadline returns when the lease ends if it is not renewed, by the more pessimistic
// of two clocks.
func (l *Lease) Deadline() time.Time {
	c := l.grant.keepAlive.client
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Time().Add(now.Until(l.grant.Grant.Deadline()))
}

// Renew extends the lease now, and with it the other leases of its session. Only
// leases without automatic renewal need it.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	k := l.grant.keepAlive
	renewal, renewErr := k.renewNow(ctx)
	if err := l.Err(); err != nil {
		return err
	}
	k.client.mu.Lock()
	defer k.client.mu.Unlock()
	if renewal != nil && l.grant.CoveredBy(renewal) {
		return nil // if others failed, not this one
	}
	return renewErr
}

// Release releases the lease. Its Context ends first. Then it calls the service, even
// if ctx has ended: only the values of ctx are used, and the call takes a few
// seconds at most. If the service does not confirm the release, Release returns why
// and retries in the background. A second Release, or one after the lease was lost,
// returns what Err returns.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx) }

func (g *heldGrant) event(now engine.Instant, err error) Event {
	return Event{Resources: g.Held.Resources, Holder: g.Held.Holder, Token: g.Held.Token,
		Mode: g.mode, Elapsed: now.Since(g.Since), Err: err}
}
