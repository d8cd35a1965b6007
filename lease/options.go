package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Option configures a Client.
type Option func(*Client) error

// WithPolicies sets the modes and timings of locks for this client. Timings in the
// policies of the service replace these. If a lock does not have the mode that the
// client expects, Acquire returns ErrModeMismatch.
func WithPolicies(policies ...Policy) Option {
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

// WithHooks adds hooks that observe the client. Hooks of several WithHooks are called in
// the order of the options.
func WithHooks(hooks Hooks) Option {
	return func(c *Client) error {
		c.hooks = joinHooks(c.hooks, hooks)
		return nil
	}
}

// WithName sets the name that others see as the holder of this client's leases,
// unless WithHolder sets another one. The default is the host name and the process
// id. A name alone does not make leases re-entrant.
func WithName(name string) Option {
	return func(c *Client) error {
		c.name = name
		return nil
	}
}

// WithOnClose makes Close call f after it has released everything, for example to
// close connections that only this client uses.
func WithOnClose(f func(context.Context) error) Option {
	return func(c *Client) error {
		if f == nil {
			return fmt.Errorf("%w: the function of WithOnClose is nil", engine.ErrInvalid)
		}
		c.onClose = append(c.onClose, f)
		return nil
	}
}

// AcquireOption configures one acquisition.
type AcquireOption func(*acquireSettings) error

// WithTTL sets how long the lease lasts without renewal. Renewal and drift come from
// the lock's policy, or follow from the TTL if the policy does not set them.
func WithTTL(ttl time.Duration) AcquireOption {
	return func(s *acquireSettings) error {
		s.ttl = ttl
		return engine.ValidateTTL(ttl)
	}
}

// WithWaitLimit makes Acquire give up when it has waited for limit. It then returns ErrHeld if
// it has waited for the lock, and ErrUnavailable or ErrUncertain if it has waited for an answer of
// the service. Without it Acquire waits until its context ends.
func WithWaitLimit(limit time.Duration) AcquireOption {
	return func(s *acquireSettings) error {
		if limit <= 0 {
			return fmt.Errorf("%w: wait limit (%v) must be above 0; use TryAcquire to not wait", engine.ErrInvalid, limit)
		}
		s.waitLimit = limit
		return nil
	}
}

// WithMode sets the mode that the caller expects the lock to have. If the lock has
// another mode, Acquire returns ErrModeMismatch: a call cannot choose the mode.
func WithMode(mode Mode) AcquireOption {
	return func(s *acquireSettings) error {
		if mode == engine.AnyMode || mode > engine.Correctness {
			return fmt.Errorf("%w: expected mode %s, use Efficiency or Correctness", engine.ErrInvalid, mode)
		}
		s.request.Mode = mode
		return nil
	}
}

// WithShared requests a lease that is shared with other readers.
func WithShared() AcquireOption {
	return func(s *acquireSettings) error { return s.setKind(engine.Shared, 0) }
}

// WithPermits requests one of n permits of a semaphore. A lease holds one permit,
// whose slot is from 1 to n. Guard writes under Lease.GateResource, because holders
// of different slots do not exclude each other. The number of permits belongs to the
// lock: while anyone holds or waits for a permit, a request with another n fails with
// ErrPermits.
func WithPermits(n int) AcquireOption {
	return func(s *acquireSettings) error { return s.setKind(engine.Permit, n) }
}

func (s *acquireSettings) setKind(kind engine.Kind, permits int) error {
	if s.request.Kind != engine.Exclusive && s.request.Kind != kind {
		return fmt.Errorf("%w: WithShared and WithPermits exclude each other", engine.ErrInvalid)
	}
	s.request.Kind, s.request.Permits = kind, permits
	return nil
}

// WithSet acquires more resources together with the named one: all or none, under
// one token.
func WithSet(more ...fencing.Resource) AcquireOption {
	more = slices.Clone(more) // the caller may change its slice, and Elect uses the option again
	return func(s *acquireSettings) error {
		s.request.Resources = append(s.request.Resources, more...)
		return nil
	}
}

// WithMetadata attaches data that Inspect shows to others.
func WithMetadata(metadata map[string]string) AcquireOption {
	return func(s *acquireSettings) error {
		s.request.Metadata = maps.Clone(metadata)
		return nil
	}
}

// WithHolder names the holder and makes the lease re-entrant: if the same holder of
// the same Client acquires the same resources again, it gets another lease with the
// same token, and the resources are free when all its leases are released. Options
// that contradict the first lease are refused. Holders of different Clients are
// different even if their names are equal.
func WithHolder(name string) AcquireOption {
	return func(s *acquireSettings) error {
		if name == "" {
			return fmt.Errorf("%w: the holder's name is empty", engine.ErrInvalid)
		}
		s.request.Holder, s.reentrant = name, true
		return nil
	}
}

// WithoutRenewal requests a lease that the client does not renew: it ends after its
// TTL unless the caller calls Lease.Renew.
func WithoutRenewal() AcquireOption {
	return func(s *acquireSettings) error {
		s.fixed = true
		return nil
	}
}
