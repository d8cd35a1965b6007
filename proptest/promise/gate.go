package promise

// user takes what a holder knows of its operation at the gate.
func (j *Judge) user(e Event) *Violation {
	o := j.ops[e.Op]
	if e.Kind == Sent {
		if o == nil {
			j.report.Operations++
			j.ops[e.Op] = &operation{}
		}
		return nil
	}
	if o == nil {
		return broken(Tellable, "operation %d was never sent", e.Op)
	}
	j.checked(Survives)
	switch {
	case e.Kind == Acknowledged && !o.applied:
		return broken(Survives, "operation %d was acknowledged, the storage did not apply it", e.Op)
	case e.Kind == Rejected && o.applied:
		return broken(Once, "operation %d was refused, the storage did apply it", e.Op)
	}
	if e.Kind == Acknowledged {
		l := j.lock(e.Resource)
		l.acked = max(l.acked, o.version)
	}
	return nil
}

// storage takes what the storage did, in its own order.
func (j *Judge) storage(e Event) *Violation {
	l := j.lock(e.Resource)
	if e.Kind == Found {
		j.checked(Survives)
		if e.Version < l.acked || e.Version != l.version {
			return broken(Survives, "version %d was written and %d acknowledged, %d is there", l.version, l.acked, e.Version)
		}
		return nil
	}
	if e.Kind == Stale {
		j.report.Stale++
		if o := j.ops[e.Op]; o != nil {
			o.refused = true
		}
		if e.Token >= l.mark {
			return broken(G1, "refused, though the mark is %d", l.mark)
		}
		return nil
	}
	j.checked(G1)
	if e.Token < l.mark {
		return broken(G1, "admitted, though the mark is %d", l.mark)
	}
	l.mark = e.Token
	if e.Kind == Entered {
		return nil
	}
	return j.wrote(l, e)
}

// wrote holds a write against G2 and Once.
func (j *Judge) wrote(l *lock, e Event) *Violation {
	j.report.Writes++
	o := j.ops[e.Op]
	if o == nil {
		return broken(Tellable, "operation %d was never sent", e.Op)
	}
	j.checked(Once)
	if o.applied {
		return broken(Once, "operation %d was applied before", e.Op)
	}
	j.checked(G2)
	was := l.version
	o.applied, o.version, l.version = true, e.Version, e.Version
	if e.Seen != was {
		return broken(G2, "it was made from version %d, and version %d is overwritten", e.Seen, was)
	}
	return nil
}
