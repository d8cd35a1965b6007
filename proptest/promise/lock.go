package promise

import "github.com/leased-project/leased/fencing"

// client takes what a client knows of its attempt.
func (j *Judge) client(e Event) *Violation {
	l := j.lock(e.Resource)
	a := j.attempts[e.Attempt]
	if e.Kind == Asked {
		if a == nil { // else it asks again: what counts is the first time
			j.report.Operations++
			j.attempts[e.Attempt] = &attempt{resource: e.Resource, above: l.largest, faults: l.told}
		}
		return nil
	}
	if a == nil || a.resource != e.Resource {
		return broken(Tellable, "attempt %s did not ask for %s", e.Attempt, e.Resource)
	}
	switch e.Kind {
	case Told:
		return j.told(l, a, e)
	case Ended:
		j.report.Operations++
		delete(l.believe, e.Attempt)
	case Refused:
		delete(l.believe, e.Attempt)
	}
	return nil
}

// told holds a grant against T1, T2 and T3, and counts overlaps.
func (j *Judge) told(l *lock, a *attempt, e Event) *Violation {
	j.report.Grants++
	j.checked(T1)
	j.checked(Once)
	if owner, ok := l.owners[e.Token]; ok && owner != e.Attempt {
		return broken(T1, "token %d was granted to attempt %s before", e.Token, owner)
	}
	if a.token != fencing.None && a.token != e.Token {
		return broken(Once, "the attempt has token %d already", a.token)
	}
	if !e.Token.Valid() {
		return broken(T2, "%d is no token", e.Token)
	}
	if j.Log && !e.Unlogged {
		j.checked(Survives)
		if a.logged != e.Token {
			return broken(Survives, "the log granted token %d to this attempt", a.logged)
		}
	}
	again := a.token == e.Token
	a.token, l.owners[e.Token] = e.Token, e.Attempt
	if again {
		return nil
	}
	if len(l.believe) > 0 {
		j.report.Overlaps++
	}
	l.believe[e.Attempt] = true
	p := T2
	if j.faults > a.faults {
		p = T3
	}
	j.checked(p)
	if e.Token <= a.above {
		return broken(p, "token %d was granted before the attempt was made", a.above)
	}
	if e.Token > l.largest {
		l.largest, l.told = e.Token, j.faults
	}
	return nil
}

// service takes what the log says.
func (j *Judge) service(e Event) *Violation {
	l := j.lock(e.Resource)
	a := j.attempts[e.Attempt]
	if a == nil {
		return broken(Tellable, "attempt %s was never made", e.Attempt)
	}
	if e.Kind == Freed {
		if l.holder != e.Attempt {
			return broken(Tellable, "attempt %s was freed, attempt %q holds", e.Attempt, l.holder)
		}
		l.holder = ""
		return nil
	}
	j.checked(M1)
	if a.era != j.era { // that grant is forgotten
		a.logged = fencing.None
	}
	switch {
	case l.holder != "":
		return broken(M1, "attempt %s holds it", l.holder)
	case a.logged != fencing.None:
		return broken(Once, "the attempt was granted token %d before", a.logged)
	case e.Token <= l.logged:
		return broken(T2, "after token %d in the log", l.logged)
	}
	a.logged, a.era, l.logged, l.holder = e.Token, j.era, e.Token, e.Attempt
	return nil
}

// replica compares what nodes have applied. An index is forgotten when the
// highest is far beyond.
func (j *Judge) replica(e Event) *Violation {
	const window = 1 << 16
	if hash, ok := j.hashes[e.Index]; ok {
		j.checked(Chain)
		if hash != e.Hash {
			return broken(Chain, "another node has hash %016x at index %d", hash, e.Index)
		}
		return nil
	}
	j.hashes[e.Index] = e.Hash
	j.highest = max(j.highest, e.Index)
	if len(j.hashes) > 2*window {
		for index := range j.hashes {
			if index+window < j.highest {
				delete(j.hashes, index)
			}
		}
	}
	return nil
}
