package property

// observeHolder takes an event of a holder about its operation at the gate.
func (c *Checker) observeHolder(e Event) *Violation {
	if e.Access != Write {
		return nil
	}
	o := c.ops[e.Op]
	if e.Kind == Sent {
		if o == nil {
			c.report.Operations++
			c.ops[e.Op] = &operation{}
		}
		return nil
	}
	if o == nil {
		return violated(WellFormed, "operation %d was never sent", e.Op)
	}
	c.count(Survives)
	switch {
	case e.Kind == Acknowledged && !o.applied:
		return violated(Survives, "operation %d was acknowledged, but the storage did not apply it", e.Op)
	case e.Kind == Rejected && o.applied:
		return violated(Once, "operation %d was refused, but the storage applied it", e.Op)
	}
	if e.Kind == Acknowledged {
		l := c.lock(e.Resource)
		l.acked = max(l.acked, o.version)
	}
	return nil
}

// observeStorage takes an event of the storage, in the storage's own order.
func (c *Checker) observeStorage(e Event) *Violation {
	l := c.lock(e.Resource)
	if e.Kind == Found {
		c.count(Survives)
		if e.Version < l.acked || e.Version != l.version {
			return violated(Survives, "version %d was written and %d acknowledged, but the storage holds %d", l.version, l.acked,
				e.Version)
		}
		return nil
	}
	if e.Kind == Stale {
		c.report.Stale++
		if o := c.ops[e.Op]; o != nil {
			o.refused = true
		}
		if e.Token >= l.mark {
			return violated(G1, "refused, although the mark is %d", l.mark)
		}
		return nil
	}
	c.count(G1)
	if e.Token < l.mark {
		return violated(G1, "admitted, although the mark is %d", l.mark)
	}
	l.mark = e.Token
	if e.Kind == Entered {
		return nil
	}
	return c.wrote(l, e)
}

// wrote checks a write against G2 and Once.
func (c *Checker) wrote(l *lock, e Event) *Violation {
	c.report.Writes++
	o := c.ops[e.Op]
	if o == nil {
		return violated(WellFormed, "operation %d was never sent", e.Op)
	}
	c.count(Once)
	if o.applied {
		return violated(Once, "operation %d was applied twice", e.Op)
	}
	c.count(G2)
	was := l.version
	o.applied, o.version, l.version = true, e.Version, e.Version
	if e.Seen != was {
		return violated(G2, "the write was based on version %d and overwrites version %d", e.Seen, was)
	}
	return nil
}
