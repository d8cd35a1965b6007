package lease

import (
	"context"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// plan is an acquisition as the options and the policies describe it.
type plan struct {
	named     fencing.Resource
	request   engine.Request
	ttl       time.Duration // 0 if the call leaves it to the policy
	timing    timing
	try       bool // do not wait, do not try again
	waitLimit time.Duration
	fixed     bool // no renewal
	reentrant bool
}

// timing selects the session: leases with equal timings share one.
type timing struct {
	ttl, renew, drift time.Duration
}

func timingOf(p engine.Policy) timing { return timing{ttl: p.TTL, renew: p.Renew, drift: p.Drift} }

// validity is how long a lease lasts, counted from before the request was sent.
func (t timing) validity() time.Duration { return t.ttl - t.drift }

// plan puts the options together and checks the result. The policies follow.
func (c *Client) plan(resource fencing.Resource, try bool, options []AcquireOption) (*plan, error) {
	p := &plan{named: resource, try: try, request: engine.Request{Resources: []fencing.Resource{resource}, Holder: c.name, Wait: !try}}
	for _, option := range options {
		if err := option(p); err != nil {
			return nil, err
		}
	}
	p.request.Resources = engine.SortedSet(p.request.Resources)
	p.request.Nonce = 1 // replaced by each attempt
	if err := p.request.Validate(); err != nil {
		return nil, err
	}
	if c.source != nil {
		return p, nil
	}
	return p, c.applyPolicies(p)
}

// topologyWaiter is a TopologySource that has to be asked for its first topology
// over the network.
type topologyWaiter interface {
	AwaitTopology(ctx context.Context) error
}

// learn applies the policies of the service, once they are known.
func (a *acquisition) learn(ctx context.Context) error {
	if a.client.source == nil {
		return nil
	}
	if waiter, ok := a.client.source.(topologyWaiter); ok {
		for n := 0; ; n++ {
			err := waiter.AwaitTopology(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil || final(err) || a.plan.try {
				return a.gaveUp(ctx, err)
			}
			emit(a.client.hooks.Waiting, a.event(err))
			if sleep(ctx, pause(n)) != nil {
				return a.gaveUp(ctx, err)
			}
		}
	}
	return a.client.applyPolicies(a.plan)
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

// applyPolicies fills in what the options left open. Timings of the policy that
// a call does not set stay as they are; a set takes the most cautious of its
// policies, and must be of one mode.
func (c *Client) applyPolicies(p *plan) error {
	var topology *engine.Topology
	if c.source != nil {
		current := c.source.Topology()
		topology = &current
	}
	var cautious engine.Policy
	for i, resource := range p.request.Resources {
		policy := c.policyOf(resource, topology)
		if p.ttl != 0 {
			policy.TTL = p.ttl
		}
		if err := policy.Validate(); err != nil {
			return err
		}
		policy = policy.Filled()
		if i == 0 {
			cautious = policy
		}
		cautious.TTL, cautious.Renew = min(cautious.TTL, policy.TTL), min(cautious.Renew, policy.Renew)
		cautious.Drift = max(cautious.Drift, policy.Drift)
		if policy.Mode == engine.AnyMode {
			continue
		}
		if p.request.Mode == engine.AnyMode {
			p.request.Mode = policy.Mode
		}
		if p.request.Mode != policy.Mode {
			return &engine.ModeError{Resource: resource, Want: p.request.Mode, Have: policy.Mode}
		}
	}
	p.timing = timingOf(cautious)
	return cautious.Validate()
}
