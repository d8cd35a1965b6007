package lease

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// acquireSettings are the settings of one acquisition, from its options and the policies.
type acquireSettings struct {
	named     fencing.Resource
	request   engine.Request
	ttl       time.Duration // 0 if the call leaves it to the policy
	timing    timing
	try       bool // do not wait for the lock
	waitLimit time.Duration
	fixed     bool // no renewal
	reentrant bool
}

// timing selects the session: leases with equal timings share one.
type timing struct {
	ttl, renew, drift time.Duration
}

func timingOf(p engine.Policy) timing { return timing{ttl: p.TTL, renew: p.Renew, drift: p.Drift} }

// validity returns how long a lease lasts, counted from before the request was sent.
func (t timing) validity() time.Duration { return t.ttl - t.drift }

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
	if c.source != nil {
		return nil // learnPolicies follows
	}
	return c.applyPolicies(s)
}

// topologyWaiter is a TopologySource that reads its first topology over the network.
type topologyWaiter interface {
	AwaitTopology(ctx context.Context) error
}

// learnPolicies applies the policies of the service once they are known.
func (a *acquisition) learnPolicies(ctx context.Context) error {
	if a.client.source == nil {
		return nil
	}
	if waiter, ok := a.client.source.(topologyWaiter); ok {
		if err := a.client.retry(ctx, a.began, a.again, func() error { return waiter.AwaitTopology(ctx) }); err != nil {
			return err
		}
	}
	return a.client.applyPolicies(&a.settings)
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
	if c.source != nil {
		current := c.source.Topology()
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
	s.timing = timingOf(strictest)
	return strictest.Validate()
}
