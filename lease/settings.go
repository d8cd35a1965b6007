package lease

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// acquireSettings are the settings of one acquisition, from its options and the policies.
type acquireSettings struct {
	named     fencing.Resource
	request   engine.Request
	ttl       time.Duration // 0 if the call leaves it to the policy
	timing    clientcore.Timing
	try       bool // do not wait for the lock
	waitLimit time.Duration
	fixed     bool // no renewal
	reentrant bool
}

// set applies the options and validates the request. This is the only place in a client
// process that validates it.
func (s *acquireSettings) set(c *Client, resource fencing.Resource, try bool, options []AcquireOption) error {
	s.named, s.try = resource, try
	s.request = engine.Request{Resources: []fencing.Resource{resource}, Holder: c.name, Wait: !try}
	for _, option := range options {
		if err := option(s); err != nil {
			return err
		}
	}
	s.request.Resources = engine.SortedSet(s.request.Resources)
	s.request.Nonce = 1 // replaced by each attempt
	if err := s.request.Validate(); err != nil {
		return err
	}
	if c.routed != nil {
		return nil // learnPolicies follows
	}
	return c.applyPolicies(s)
}

// learnPolicies applies the policies of the service once they are known.
func (a *acquisition) learnPolicies(ctx context.Context) error {
	c := a.client
	if c.routed == nil {
		return nil
	}
	for {
		err := c.routed.AwaitTopology(ctx)
		if err == nil {
			break
		}
		if err = a.failed(ctx, err); err != nil {
			return err
		}
	}
	c.follow.Do(func() { c.work.Go(c.followTopology) })
	return c.applyPolicies(&a.settings)
}

// followTopology passes every new topology to the core until the client is closed.
func (c *Client) followTopology() {
	for c.ctx.Err() == nil {
		c.syncTopology()
		c.mu.Lock()
		version := c.core.Topology().Version
		c.mu.Unlock()
		if _, err := c.routed.NextTopology(c.ctx, version); err != nil {
			_ = engine.Sleep(c.ctx, topologyTimeout)
		}
	}
}

// syncTopology passes the newest topology to the core, and ends the leases and waits that
// it ends.
func (c *Client) syncTopology() {
	if c.routed == nil {
		return
	}
	topology := c.routed.Topology()
	c.mu.Lock()
	known := c.core.Topology()
	c.mu.Unlock()
	if known != nil && known.Version == topology.Version {
		return
	}
	c.update(func(engine.Instant) []*clientcore.Grant {
		calls, lost := c.core.SetTopology(topology)
		for _, call := range calls {
			call.Owner.(*acquisition).reroute(clientcore.ErrRerouted)
		}
		for _, g := range lost {
			g.Session().Owner.(*keepAlive).wakeUp()
		}
		return lost
	})
}

// awaitTopology waits for a topology newer than version, for topologyTimeout at most. If
// none arrives, the backend looks for a newer one.
func (c *Client) awaitTopology(ctx context.Context, version uint64) {
	limited, cancel := context.WithTimeout(ctx, topologyTimeout)
	defer cancel()
	if _, err := c.routed.NextTopology(limited, version); err != nil && ctx.Err() == nil {
		c.routed.RefreshTopology()
	}
}

// policyOf returns the policy of a lock for this client. Timings that the service
// sets replace those of the client. A mode that the client sets is what it expects.
func (c *Client) policyOf(resource fencing.Resource, topology *engine.Topology) engine.Policy {
	own := c.policies.Match(resource)
	if topology == nil {
		return own
	}
	theirs := topology.Policies.Match(resource)
	if theirs.TTL != 0 || theirs.Renew != 0 || theirs.Drift != 0 {
		own.TTL, own.Renew, own.Drift = theirs.TTL, theirs.Renew, theirs.Drift
	}
	return own
}

// applyPolicies sets what the options left open. A set takes the shortest TTL and
// renewal and the largest drift of its policies, and must have one mode.
func (c *Client) applyPolicies(s *acquireSettings) error {
	var topology *engine.Topology
	if c.routed != nil {
		current := c.routed.Topology()
		topology = &current
	}
	var strictest engine.Policy
	for i, resource := range s.request.Resources {
		policy := c.policyOf(resource, topology)
		if s.ttl != 0 {
			policy.TTL = s.ttl
		}
		if err := policy.Validate(); err != nil {
			return err
		}
		policy = policy.Filled()
		if i == 0 {
			strictest = policy
		}
		strictest.TTL, strictest.Renew = min(strictest.TTL, policy.TTL), min(strictest.Renew, policy.Renew)
		strictest.Drift = max(strictest.Drift, policy.Drift)
		if policy.Mode == engine.AnyMode {
			continue
		}
		if s.request.Mode == engine.AnyMode {
			s.request.Mode = policy.Mode
		}
		if s.request.Mode != policy.Mode {
			return &engine.ModeError{Resource: resource, Want: s.request.Mode, Have: policy.Mode}
		}
	}
	s.timing = clientcore.Timing{TTL: strictest.TTL, Renew: strictest.Renew, Drift: strictest.Drift}
	return strictest.Validate()
}
