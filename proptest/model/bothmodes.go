package model

import (
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Route is the way in which a lock is served.
type Route struct {
	Mode   engine.Mode
	Moving bool // to the other mode
	Ready  bool // efficiency locks may be granted
}

// bothModes is the state of a LogChecker that concerns both modes.
type bothModes struct {
	routes  map[fencing.Resource]Route
	raft    map[fencing.Resource]fencing.Token // the largest token granted in correctness mode
	redis   map[fencing.Resource]fencing.Token // the largest token that Redis may have granted
	ceiling fencing.Token
}

// Routed checks how each lock is served after a command, with the floor and ceiling
// that every Redis node should reach. Redis may grant a lock in efficiency mode any
// token above floor, up to ceiling. The floor applies when the lock enters this mode
// and the mode is ready.
func (c *LogChecker) Routed(routes map[fencing.Resource]Route, floor, ceiling fencing.Token) error {
	if ceiling < c.ceiling {
		return violated(Modes, "the ceiling fell from %d to %d", c.ceiling, ceiling)
	}
	c.ceiling = ceiling
	for name, route := range routes {
		if route.Mode == engine.Efficiency {
			if old := c.routes[name]; route.Ready && !(old.Ready && old.Mode == engine.Efficiency) && floor < c.raft[name] {
				return violated(Modes, "Redis may grant %q a token just above %d, but %d was granted in correctness mode", name,
					floor, c.raft[name])
			}
			c.redis[name] = ceiling
		}
	}
	c.routes = routes
	for i, p := range c.waiters {
		for _, name := range p.request.Resources {
			if r := routes[name]; r.Mode == engine.Efficiency {
				return violated(Closed, "attempt %d waits for %q", p.attempt.Nonce, name)
			} else if r.Moving {
				c.waiters[i].moved = true
			}
		}
	}
	return nil
}

// serves reports whether the machine may grant a lock. The zero Route is that of a lock
// without a policy.
func (r Route) serves() bool { return !r.Moving && r.Mode != engine.Efficiency }

// RedisGranted tells the checker that Redis has granted no token above this one to locks that leave efficiency mode.
func (c *LogChecker) RedisGranted(upTo fencing.Token) {
	for name, route := range c.routes {
		if route.Mode == engine.Efficiency && route.Moving {
			c.redis[name] = min(c.redis[name], upTo)
		}
	}
}

// checkOtherMode checks a grant against the tokens of the other mode.
func (c *LogChecker) checkOtherMode(e Event) error {
	for _, name := range e.Resources {
		if !c.routes[name].serves() {
			return violated(Closed, "%q was granted with token %d", name, e.Token)
		}
		if e.Token <= c.redis[name] {
			return violated(Modes, "%q was granted with token %d, but Redis may have granted %d", name, e.Token, c.redis[name])
		}
	}
	for _, name := range e.Resources {
		c.raft[name] = e.Token
	}
	return nil
}
