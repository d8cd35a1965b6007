package sim

import (
	"cmp"
	"errors"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// locks is what an engine.Session does in production, with callbacks instead of
// goroutines. A callback is called at most once; a crash of the client drops it.
type locks interface {
	// start is called at the start and after each crash.
	start()
	open(s *clientcore.Session, done func(error))
	acquire(s *clientcore.Session, request engine.Request, done func(engine.Grant, error))
	renew(s *clientcore.Session, held []engine.Held, done func([]engine.Nonce, error))
	// update extends a lease to another TTL.
	update(s *clientcore.Session, held engine.Held, done func(error))
	release(s *clientcore.Session, held engine.Held, done func(error))
	close(s *clientcore.Session, held []engine.Held)
}

// session is the client's record of a session.
type session struct {
	opening []func(error) // callers that wait until it is open
	timer   int           // number of the last timer; earlier ones are obsolete
	closed  bool
}

func (c *client) timing() clientcore.Timing {
	return clientcore.Timing{TTL: c.policy.TTL, Renew: c.policy.Renew, Drift: c.policy.Drift}
}

func (c *client) engine(s *clientcore.Session) locks { return c.engines[s.Key().Mode] }

// ask makes the next ask of an attempt, as lease.acquisition does.
func (c *client) ask(a *attempt) {
	if a.over {
		return
	}
	if c.follow != nil && c.core.Topology() == nil {
		c.again(a, clientcore.Verdict{Pause: 50 * time.Millisecond})
		return
	}
	former := a.core.Session()
	s, err := c.core.Route(&a.core, c.now(), c.timing(), false)
	if former != nil && former != a.core.Session() {
		c.stepSession(former)
	}
	if err != nil {
		c.failed(a, err)
		return
	}
	if !s.IsOpen() {
		c.open(s, func(err error) {
			switch {
			case a.over:
			case err != nil:
				c.failed(a, err)
			default:
				c.ask(a)
			}
		})
		return
	}
	request := c.core.Ask(&a.core, c.now())
	if !request.Repeated {
		a.key = c.w.attemptKey(s.ID(), request.Nonce)
		c.w.emit(property.Event{Kind: property.Requested, Who: c.name, Resource: a.name, Attempt: a.key})
	}
	a.asks++
	asks := a.asks
	c.engine(s).acquire(s, request, func(answer engine.Grant, err error) {
		switch {
		case a.over || asks != a.asks || a.token != fencing.None:
			if err == nil && answer.Name != "" { // an engine without sessions ends an ask whose caller has left
				c.engine(s).release(s, engine.Held{Name: answer.Name}, func(error) {})
			}
		case err != nil:
			c.failed(a, err)
		default:
			c.granted(a, answer)
		}
	})
}

// open opens a session, once for all callers.
func (c *client) open(s *clientcore.Session, done func(error)) {
	if s.Owner == nil {
		s.Owner = &session{}
	}
	record := s.Owner.(*session)
	record.opening = append(record.opening, done)
	if len(record.opening) > 1 {
		return
	}
	sent := c.now()
	c.engine(s).open(s, func(err error) {
		if err == nil {
			s.Opened(sent)
			c.stepSession(s)
		}
		callers := record.opening
		record.opening = nil
		for _, done := range callers {
			done(err)
		}
	})
}

// granted takes the answer of an engine.
func (c *client) granted(a *attempt, answer engine.Grant) {
	if c.w.plan.Flaws.LateValidity {
		answer.Sent = c.now()
	}
	g, s := &clientcore.Grant{Owner: a}, a.core.Session()
	if answer.Name == "" { // a late copy may have another identity in the log
		a.key = cmp.Or(c.w.cluster.log.keys[answer.Token], a.key)
	}
	if err := c.core.Granted(&a.core, c.now(), g, answer); err != nil {
		c.failed(a, err)
		c.stepSession(s)
		return
	}
	a.grant, a.token = g, answer.Token
	c.core.Leave(&a.core, c.now())
	c.stepSession(s)
	c.use(a)
}

// failed does what the core decides after a failure.
func (c *client) failed(a *attempt, err error) {
	s := a.core.Session()
	v := c.core.Failed(&a.core, c.now(), err, false)
	c.lost(v.Ended)
	if s != nil {
		c.stepSession(s)
	}
	switch {
	case a.over:
	case v.Again:
		c.again(a, v)
	default:
		if errors.Is(err, engine.ErrHeld) {
			c.w.emit(property.Event{Kind: property.Denied, Who: c.name, Resource: a.name, Attempt: a.key})
		}
		c.close(a)
	}
}

// again asks again after the pause.
func (c *client) again(a *attempt, v clientcore.Verdict) {
	if v.Newer && c.follow != nil {
		c.follow.load()
	}
	c.w.timer(c.process, v.Pause, func() { c.ask(a) })
}

// release ends the use of an attempt: it releases the lease, or leaves the queue.
func (c *client) release(a *attempt) {
	if a.grant == nil {
		s := a.core.Session()
		if s == nil {
			return
		}
		c.core.Failed(&a.core, c.now(), engine.ErrUncertain, true)
		c.core.Leave(&a.core, c.now())
		c.stepSession(s)
		return
	}
	if a.grant.Err() != nil {
		return // the core releases it
	}
	s, held := a.grant.Session(), a.grant.Held
	a.grant.Release()
	c.engine(s).release(s, held, func(err error) {
		if errors.Is(err, engine.ErrLost) {
			err = nil
		}
		s.Released(held, err)
		c.stepSession(s)
	})
}

// lost ends leases.
func (c *client) lost(grants []*clientcore.Grant) {
	for _, g := range grants {
		c.end(g.Owner.(*attempt))
	}
}

// reportLost takes the loss of a lease from an engine.
func (c *client) reportLost(s *clientcore.Session, nonce engine.Nonce, err error) {
	if g := s.Lost(nonce, err); g != nil {
		c.lost([]*clientcore.Grant{g})
		c.stepSession(s)
	}
}

// stepSession performs the actions that are due in a session, as lease.keepAlive does.
func (c *client) stepSession(s *clientcore.Session) {
	record, ok := s.Owner.(*session)
	if !ok || !s.IsOpen() || record.closed {
		return
	}
	actions := s.Step(c.now())
	c.lost(actions.Ended)
	if r := actions.Renewal; r != nil {
		c.step(AboutToRenew, func() { c.renew(s, r) })
	}
	for _, held := range actions.Release {
		c.engine(s).release(s, held, func(err error) {
			s.ReleasedLater(c.now(), held.Nonce, err)
			c.stepSession(s)
		})
	}
	record.timer++
	if actions.Close {
		record.closed = true
		if held, needed := s.Closing(); needed {
			c.engine(s).close(s, held)
		}
		return
	}
	number := record.timer
	c.w.timer(c.process, actions.Next, func() {
		if record.timer == number {
			c.stepSession(s)
		}
	})
}

// extend extends a lease to another TTL, as Lease.Extend does.
func (c *client) extend(a *attempt) {
	if a.over {
		return
	}
	s, held := a.grant.Session(), a.grant.Held
	held.TTL = c.policy.TTL / 2
	if c.w.chance(75) && held.Name == "" {
		held.TTL = c.policy.TTL * 2
	}
	sent := c.now()
	c.engine(s).update(s, held, func(err error) {
		s.MayBeKept(c.now().Add(held.TTL))
		switch {
		case err == nil:
			if c.w.plan.Flaws.LateValidity {
				sent = c.now()
			}
			a.grant.Extended(sent, held.TTL)
			c.stepSession(s)
		case errors.Is(err, engine.ErrLost):
			c.reportLost(s, held.Nonce, err)
		}
	})
}

// renew sends a renewal. It has the time until the next one.
func (c *client) renew(s *clientcore.Session, r *clientcore.Renewal) {
	done := false
	finish := func(extended []engine.Nonce, err error) {
		if done {
			return
		}
		done = true
		if errors.Is(err, engine.ErrLost) {
			c.lost(s.End(err))
		}
		_ = s.Renewed(r, extended, err) // the core tries again
		c.stepSession(s)
	}
	c.engine(s).renew(s, r.Held, finish)
	c.w.timer(c.process, c.policy.Renew, func() { finish(nil, engine.ErrUncertain) })
}

// followed passes a new topology to the core.
func (c *client) followed(topology engine.Topology) {
	reroute, lost := c.core.SetTopology(topology)
	c.lost(lost)
	for _, g := range lost {
		c.stepSession(g.Session())
	}
	for _, call := range reroute {
		a := call.Owner.(*attempt)
		a.asks++ // the answer is too late
		c.failed(a, clientcore.ErrRerouted)
	}
}
