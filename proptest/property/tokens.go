package property

import "github.com/leased-project/leased/fencing"

// observeClient takes an event of a client about its attempt.
func (c *Checker) observeClient(e Event) *Violation {
	l := c.lock(e.Resource)
	a := c.attempts[e.Attempt]
	if e.Kind == Requested {
		if a == nil { // a repeated request changes nothing
			c.report.Operations++
			c.attempts[e.Attempt] = &attempt{resource: e.Resource, above: l.largest, faults: l.faults}
		}
		return nil
	}
	if a == nil || a.resource != e.Resource {
		return violated(WellFormed, "attempt %s was never requested for %s", e.Attempt, e.Resource)
	}
	switch e.Kind {
	case Acquired:
		return c.acquired(l, a, e)
	case Ended:
		c.report.Operations++
		delete(l.active, e.Attempt)
	case Denied:
		delete(l.active, e.Attempt)
	}
	return nil
}

// acquired checks a grant against T1, T2 and T3, and counts overlaps.
func (c *Checker) acquired(l *lock, a *attempt, e Event) *Violation {
	c.report.Grants++
	c.count(T1)
	c.count(Once)
	if owner, ok := l.owners[e.Token]; ok && owner != e.Attempt {
		return violated(T1, "token %d was granted to attempt %s earlier", e.Token, owner)
	}
	if a.token != fencing.None && a.token != e.Token {
		return violated(Once, "the attempt already has token %d", a.token)
	}
	if !e.Token.Valid() {
		return violated(T2, "%d is not a valid token", e.Token)
	}
	if c.Log && !e.Unlogged {
		c.count(Survives)
		if a.logged != e.Token {
			return violated(Survives, "the log granted token %d to this attempt", a.logged)
		}
	}
	again := a.token == e.Token
	a.token, l.owners[e.Token] = e.Token, e.Attempt
	if again {
		return nil
	}
	if len(l.active) > 0 {
		c.report.Overlaps++
	}
	l.active[e.Attempt] = true
	p := T2
	if c.faults > a.faults {
		p = T3
	}
	c.count(p)
	if e.Token <= a.above {
		return violated(p, "token %d was granted before the attempt was requested", a.above)
	}
	if e.Token > l.largest {
		l.largest, l.faults = e.Token, c.faults
	}
	return nil
}

// observeLog takes an event of the log.
func (c *Checker) observeLog(e Event) *Violation {
	l := c.lock(e.Resource)
	a := c.attempts[e.Attempt]
	if a == nil {
		return violated(WellFormed, "attempt %s was never requested", e.Attempt)
	}
	if e.Kind == Freed {
		if l.holder != e.Attempt {
			return violated(WellFormed, "attempt %s was freed, but attempt %q is the holder", e.Attempt, l.holder)
		}
		l.holder = ""
		return nil
	}
	c.count(M1)
	if a.restores != c.restores { // the restore discarded that grant
		a.logged = fencing.None
	}
	switch {
	case l.holder != "":
		return violated(M1, "attempt %s is still the holder", l.holder)
	case a.logged != fencing.None:
		return violated(Once, "the attempt was granted token %d earlier", a.logged)
	case e.Token <= l.logged:
		return violated(T2, "token %d is earlier in the log", l.logged)
	}
	a.logged, a.restores, l.logged, l.holder = e.Token, c.restores, e.Token, e.Attempt
	return nil
}

// observeReplica compares the chain hashes of the nodes. It keeps the hashes of a
// window of indexes.
func (c *Checker) observeReplica(e Event) *Violation {
	const window = 1 << 16
	if hash, ok := c.hashes[e.Index]; ok {
		c.count(Chain)
		if hash != e.Hash {
			return violated(Chain, "another node has hash %016x at index %d", hash, e.Index)
		}
		return nil
	}
	c.hashes[e.Index] = e.Hash
	c.highest = max(c.highest, e.Index)
	if len(c.hashes) > 2*window {
		for index := range c.hashes {
			if index+window < c.highest {
				delete(c.hashes, index)
			}
		}
	}
	return nil
}
