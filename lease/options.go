package lease

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Option configures a Client.
type Option func(*Client) error

// WithPolicies says which locks have which mode and timings, for this client.
// Where the service has policies of its own their timings replace these, and a
// client that expects another mode than the lock has gets ErrModeMismatch.
func WithPolicies(policies ...engine.Policy) Option {
	return func(c *Client) (err error) {
		c.policies, err = engine.NewPolicies(policies...)
		return err
	}
}

// WithClock replaces the system's clock.
func WithClock(clock engine.Clock) Option {
	return func(c *Client) error {
		if clock == nil {
			return fmt.Errorf("%w: the clock is nil", engine.ErrInvalid)
		}
		c.clock = clock
		return nil
	}
}

// WithHooks sets who is told what happens.
func WithHooks(hooks Hooks) Option {
	return func(c *Client) error {
		c.hooks = hooks
		return nil
	}
}

// WithName sets the name under which others see this client's leases, unless
// WithHolder says otherwise. The default is the host's name and the process id.
// A name alone does not make leases re-entrant.
func WithName(name string) Option {
	return func(c *Client) error {
		c.name = name
		return nil
	}
}

// WithOnClose has Close call f after it has released everything, for what the
// client uses alone and nobody else closes, such as connections.
func WithOnClose(f func(context.Context) error) Option {
	return func(c *Client) error {
		if f == nil {
			return fmt.Errorf("%w: the function of WithOnClose is nil", engine.ErrInvalid)
		}
		c.onClose = append(c.onClose, f)
		return nil
	}
}

// AcquireOption shapes one acquisition.
type AcquireOption func(*plan) error

// WithTTL sets how long the lease lasts without renewal. Renewal and drift are
// as the lock's policy says, or follow the TTL if it says nothing.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(p *plan) error {
		if ttl < engine.MinTTL || ttl > engine.MaxTTL {
			return fmt.Errorf("%w: ttl (%v) must be from %v to %v", engine.ErrInvalid, ttl, engine.MinTTL, engine.MaxTTL)
		}
		p.ttl = ttl
		return nil
	}
}

// WithWaitLimit ends the waiting after limit, with ErrHeld. Without it Acquire
// waits until its context ends.
func WithWaitLimit(limit time.Duration) AcquireOption {
	return func(p *plan) error {
		if limit <= 0 {
			return fmt.Errorf("%w: wait limit (%v) must be above 0; use TryAcquire for no waiting", engine.ErrInvalid, limit)
		}
		p.waitLimit = limit
		return nil
	}
}

// WithMode says which mode the caller expects the lock to have. If it has
// another the answer is ErrModeMismatch: a call cannot choose.
func WithMode(mode engine.Mode) AcquireOption {
	return func(p *plan) error {
		if mode == engine.AnyMode || mode > engine.Correctness {
			return fmt.Errorf("%w: expected mode %s, use Efficiency or Correctness", engine.ErrInvalid, mode)
		}
		p.request.Mode = mode
		return nil
	}
}

// WithShared asks for a lease that is shared with other readers.
func WithShared() AcquireOption {
	return func(p *plan) error { return p.setKind(engine.Shared, 0) }
}

// WithPermits asks for one of n permits of a semaphore. A lease holds one
// permit and its slot, from 1 to n. Guard writes under Lease.GateResource, since
// holders of different slots do not exclude each other. Callers with different
// ideas of n are served: each takes a free slot within its own n.
func WithPermits(n int) AcquireOption {
	return func(p *plan) error { return p.setKind(engine.Permit, n) }
}

func (p *plan) setKind(kind engine.Kind, permits int) error {
	if p.request.Kind != engine.Exclusive && p.request.Kind != kind {
		return fmt.Errorf("%w: WithShared and WithPermits exclude each other", engine.ErrInvalid)
	}
	p.request.Kind, p.request.Permits = kind, permits
	return nil
}

// WithSet takes more resources together with the named one: all or none, under
// one token.
func WithSet(more ...fencing.Resource) AcquireOption {
	return func(p *plan) error {
		p.request.Resources = append(p.request.Resources, more...)
		return nil
	}
}

// WithMetadata attaches data that others see when they inspect the lock.
func WithMetadata(metadata map[string]string) AcquireOption {
	return func(p *plan) error {
		p.request.Metadata = maps.Clone(metadata)
		return nil
	}
}

// WithHolder names the holder and makes the lease re-entrant for it: if the
// same holder of the same Client acquires the same resources again while it has
// them, it gets a lease with the same token, and they are free after as many
// releases. The lease lives as the first one does: options that ask for
// something else are refused. Holders of different Clients are different,
// whatever their names.
func WithHolder(name string) AcquireOption {
	return func(p *plan) error {
		if name == "" {
			return fmt.Errorf("%w: the holder's name is empty", engine.ErrInvalid)
		}
		p.request.Holder, p.reentrant = name, true
		return nil
	}
}

// WithoutRenewal makes a lease of fixed time: it ends when its TTL has passed,
// unless the caller calls Lease.Renew.
func WithoutRenewal() AcquireOption {
	return func(p *plan) error {
		p.fixed = true
		return nil
	}
}
