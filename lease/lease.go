package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// Lease is a lock that the caller holds for a time, with the token that proves it.
// All methods may be called concurrently.
//
// A lease is valid for its TTL, counted from before the request was sent, minus an
// allowance for clock drift, by the more pessimistic of two clocks. The service counts
// from when it received the request, so the holder gives up first if both clocks run at
// about the same rate.
//
// There is no method that reports whether the lease is held: the answer may be wrong
// by the time the caller acts on it. Gate binds a gate to the lease, which decides with
// each write.
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
	clientcore.Grant // guarded by the Client's mu, except for Since and Held without its metadata

	keepAlive *keepAlive
	kind      engine.Kind
	permits   int
	named     fencing.Resource // the one that the caller named first
	mode      Mode
	slot      int
	record    *holderRecord // nil if not re-entrant

	signatures sync.Map // of signature, by fencing.Resource

	// Guarded by the Client's mu.
	leases    []*Lease
	first     Lease     // most grants have one lease
	room      [1]*Lease // for leases
	described int       // the number of changes of Held.Metadata
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

// GateResource returns the name to give to a gate along with Token; Gate does that. It is
// the resource, or for a permit the name of its slot: permits are held at the same
// time, and under one name their tokens would fence each other out. For a set it is
// the name that was named first; BoundGate.For guards the data of the others.
func (l *Lease) GateResource() fencing.Resource { return l.gateName(l.grant.named) }

// gateName returns the name of a resource of the lease at a gate.
func (l *Lease) gateName(resource fencing.Resource) fencing.Resource {
	if slot := l.Slot(); slot != 0 {
		return resource.Slot(slot)
	}
	return resource
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
func (l *Lease) Err() (err error) {
	k := l.grant.keepAlive
	k.client.update(func(now engine.Instant) []*clientcore.Grant {
		expired := k.check(now, l.grant) // timers may be late
		err = l.cause()
		return expired
	})
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

// Extend keeps the lease for at least ttl from now, even if the client cannot renew it in that
// time. It never shortens the lease. In correctness mode the service also keeps the other leases
// of the session, if the client stops without releasing them, and a new leader gives the session
// that time again. The limit is that of WithTTL, and in efficiency mode the longest TTL of the
// Redis fleet.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error { return l.update(ctx, ttl, nil) }

// SetMetadata replaces the metadata that Inspect shows to others, such as the progress of a job.
// It must not be empty. It also renews the lease.
func (l *Lease) SetMetadata(ctx context.Context, metadata map[string]string) error {
	if len(metadata) == 0 {
		return fmt.Errorf("%w: the metadata is empty", engine.ErrInvalid)
	}
	return l.update(ctx, l.grant.keepAlive.core.Key().TTL, maps.Clone(metadata))
}

// update renews the lease for ttl, and replaces its metadata unless it is nil.
func (l *Lease) update(ctx context.Context, ttl time.Duration, metadata map[string]string) error {
	if err := errors.Join(engine.ValidateTTL(ttl), engine.ValidateMetadata(metadata)); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	g := l.grant
	c, k := g.keepAlive.client, g.keepAlive
	c.mu.Lock()
	before := g.Held.Metadata
	if metadata != nil {
		g.Held.Metadata = metadata // from now on, renewals in efficiency mode carry it
		g.described++
	}
	described := g.described
	held := g.Held
	c.mu.Unlock()
	held.TTL = ttl
	if g.mode == engine.Correctness { // the service has the rest, which may be beyond limits that were lowered since
		held.Metadata = metadata
	}
	var sent engine.Instant
	err := c.ask(ctx, func(ctx context.Context) error {
		sent = c.clock.Now()
		return k.session.Update(ctx, held)
	})
	c.update(func(now engine.Instant) (lost []*clientcore.Grant) {
		k.core.MayBeKept(now.Add(ttl))
		if metadata != nil && err != nil && !errors.Is(err, engine.ErrUncertain) && g.described == described {
			g.Held.Metadata = before // or the service would refuse the renewals, too
		}
		switch {
		case err == nil:
			g.Extended(sent, ttl)
		case clientcore.Matches(err, engine.ErrLost):
			if ended := k.core.Lost(held.Nonce, err); ended != nil {
				lost = append(lost, ended)
			}
		}
		return lost
	})
	k.wakeUp()
	if err != nil {
		return fmt.Errorf("renew %q: %w", string(g.named), err)
	}
	return l.Err()
}

func (g *heldGrant) event(now engine.Instant, err error) Event {
	return Event{Resources: g.Held.Resources, Holder: g.Held.Holder, Token: g.Held.Token,
		Mode: g.mode, Elapsed: now.Since(g.Since), Err: err}
}
