package sim

import "slices"

// append appends an entry to the log of a leader and replicates it while the leader writes it,
// as raftstore does: a change of the members, and the entry of a leader without others, are
// written first.
func (r *replica) append(e entry) uint64 {
	e.term = r.term
	r.log = append(r.log, e)
	index := r.last()
	if e.members != nil || e.restore != nil || len(r.members()) == 1 {
		r.written = index
	} else {
		r.w.timer(r.process, r.w.random(writeTime), func() { r.wrote(index, e.term) })
	}
	r.replicate()
	r.advance()
	return index
}

// wrote ends the write of a leader's entry, and of those before it.
func (r *replica) wrote(index, term uint64) {
	if index <= r.written || index > r.last() || r.termAt(index) != term {
		return
	}
	r.written = index
	if r.role == leader {
		r.advance()
	}
}

// replicate sends every member its missing entries.
func (r *replica) replicate() {
	for _, id := range r.members() {
		if id != r.id {
			r.replicateTo(id)
		}
	}
}

// replicateTo sends one member its missing entries, or a snapshot.
func (r *replica) replicateTo(id uint32) {
	p := &r.peers[slotOf(id)]
	if p.id != id { // the slot has a new replica
		*p = peer{id: id, next: r.last() + 1, heard: r.clockNow()}
	}
	term, commit, from := r.term, r.commit, r.id
	if p.next <= r.base.index {
		snapshot := r.base
		r.post(id, func(o *replica) { o.install(from, term, snapshot) })
		return
	}
	prev := p.next - 1
	prevTerm := r.termAt(prev)
	entries := slices.Clone(r.log[prev-r.base.index:])
	r.post(id, func(o *replica) { o.receive(from, term, prev, prevTerm, entries, commit) })
}

// acceptLeader handles the term of a leader's message. It reports false for a deposed
// leader.
func (r *replica) acceptLeader(from uint32, term uint64) bool {
	if term < r.term {
		return false
	}
	r.see(term)
	if r.role == candidate {
		r.stepDown(term)
	}
	r.leader = slotOf(from)
	r.resetElection()
	return true
}

// receive handles entries of a leader. It keeps entries that agree, since the message may
// be old.
func (r *replica) receive(from uint32, term, prev, prevTerm uint64, entries []entry, commit uint64) {
	if !r.acceptLeader(from, term) {
		r.reply(from, term, false, 0)
		return
	}
	defer func() { r.written = r.last() }()
	if prev < r.base.index { // the snapshot has the first entries
		skip := min(r.base.index-prev, uint64(len(entries)))
		entries = entries[skip:]
		prev += skip
		if prev < r.base.index {
			r.reply(from, term, true, prev)
			return
		}
		prevTerm = r.base.term
	}
	if prev > r.last() || r.termAt(prev) != prevTerm {
		r.reply(from, term, false, min(prev-1, r.last()))
		return
	}
	for i, e := range entries {
		index := prev + 1 + uint64(i)
		if index <= r.last() && r.termAt(index) == e.term {
			continue
		}
		keep := index - r.base.index - 1
		r.log = append(r.log[:keep:keep], entries[i:]...)
		break
	}
	match := prev + uint64(len(entries))
	if commit = min(commit, match); commit > r.commit {
		r.commit = commit
		r.apply()
	}
	r.reply(from, term, true, match)
}

// install replaces log and state by a leader's snapshot.
func (r *replica) install(from uint32, term uint64, s image) {
	if !r.acceptLeader(from, term) {
		r.reply(from, term, false, 0)
		return
	}
	if s.index > r.commit {
		r.base, r.log, r.written = s, nil, s.index
		r.load()
	}
	r.reply(from, term, true, s.index)
}

// reply answers receive and install.
func (r *replica) reply(to uint32, term uint64, ok bool, index uint64) {
	from, now := r.id, r.term
	r.post(to, func(o *replica) {
		o.see(now)
		if o.role != leader || o.term != term {
			return
		}
		p := &o.peers[slotOf(from)]
		if p.id != from {
			return
		}
		p.heard = o.clockNow()
		switch {
		case ok:
			p.match = max(p.match, index)
			p.next = max(p.next, p.match+1)
			o.advance()
		case index < p.next:
			p.next = max(index, p.match) + 1
			o.replicateTo(from)
		}
	})
}

// advance commits the entries of this term that a majority of the members has. The
// acknowledgement of another member counts when the leader has written the entry itself.
func (r *replica) advance() {
	for index := r.last(); index > r.commit && r.termAt(index) == r.term; index-- {
		has := func(id uint32) bool {
			return id == r.id || r.peers[slotOf(id)].id == id && r.peers[slotOf(id)].match >= index && r.written >= index
		}
		if r.majority(has) {
			r.commit = index
			r.apply()
			break
		}
	}
	if r.role == leader && !r.changing() && !slices.Contains(r.members(), r.id) {
		r.stepDown(r.term) // it was removed
	}
}
