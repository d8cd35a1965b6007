package sim

import (
	"slices"
	"time"

	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

// The intervals of the replication, on a node's own clock.
const (
	heartbeat       = 300 * time.Millisecond
	electionTimeout = time.Second           // and up to as much again
	leaderTimeout   = 4 * time.Second       // without a majority; long, so that safety does not depend on it
	compactAfter    = 80                    // applied entries
	writeTime       = 20 * time.Millisecond // of a leader's disk, at most
)

// role is the role of a replica in its term.
type role uint8

const (
	follower role = iota
	candidate
	leader
)

// entry is one position of the log.
type entry struct {
	term    uint64
	data    []byte   // commands, as production encodes them
	members []uint32 // a new membership, if not nil
	restore []byte   // a state that replaces the machine's, if not nil
}

// image is a snapshot.
type image struct {
	index   uint64
	term    uint64
	members []uint32
	hash    uint64
	state   []byte
}

// replica is a Raft node: a copy of the log and of the machine.
type replica struct {
	*process
	w       *World
	cluster *cluster
	slot    int
	id      uint32 // a new one after each loss of data

	// On disk.
	term    uint64
	vote    uint32
	base    image
	log     []entry // after base; a crash loses those after written
	written uint64

	// In memory.
	role    role
	votes   []uint32
	commit  uint64
	applied uint64
	machine *machine.Machine
	hash    uint64
	leader  int           // slot, -1 if unknown
	heard   time.Duration // last message of a leader, on its own clock
	timeout time.Duration // until an election
	peers   []peer        // by slot, while it leads

	queue       *proposer.Queue[func(answer)]
	flight      *flight     // nil if no entry is in flight
	leadership  *leadership // while it leads
	leaderships uint64      // so far
}

// peer is the leader's view of another replica.
type peer struct {
	id          uint32
	next, match uint64
	heard       time.Duration // on the leader's clock
}

// boot starts a replica from its disk.
func (r *replica) boot() {
	r.written = max(r.written, r.base.index)
	r.log = r.log[:r.written-r.base.index]
	r.load()
	r.role, r.leader, r.votes, r.peers, r.leadership, r.flight = follower, -1, nil, nil, nil, nil
	r.queue = proposer.NewQueue[func(answer)](maxPending)
	r.queue.EndRequests = endRequests
	r.resetElection()
	r.tick()
	r.keep()
}

// load restores the machine from the snapshot.
func (r *replica) load() {
	m, err := machine.Restore(r.base.state)
	if err != nil {
		panic(err) // production code wrote it
	}
	r.machine, r.hash = m, r.base.hash
	r.commit, r.applied = r.base.index, r.base.index
}

func (r *replica) clockNow() time.Duration { return r.clock.wall(r.w.now) }

func (r *replica) last() uint64 { return r.base.index + uint64(len(r.log)) }

func (r *replica) at(index uint64) *entry { return &r.log[index-r.base.index-1] }

func (r *replica) termAt(index uint64) uint64 {
	if index == r.base.index {
		return r.base.term
	}
	return r.at(index).term
}

// members returns the newest membership in the log, committed or not.
func (r *replica) members() []uint32 {
	for i := len(r.log) - 1; i >= 0; i-- {
		if r.log[i].members != nil {
			return r.log[i].members
		}
	}
	return r.base.members
}

// majority reports whether something holds for a majority of the members.
func (r *replica) majority(holds func(id uint32) bool) bool {
	n, members := 0, r.members()
	for _, id := range members {
		if holds(id) {
			n++
		}
	}
	return n > len(members)/2
}

// changing reports whether a membership change is uncommitted.
func (r *replica) changing() bool {
	for i := r.commit + 1; i <= r.last(); i++ {
		if r.at(i).members != nil {
			return true
		}
	}
	return false
}

// resetElection restarts the election timeout.
func (r *replica) resetElection() {
	r.heard = r.clockNow()
	r.timeout = electionTimeout + r.w.random(electionTimeout)
}

// tick sends heartbeats if the replica leads, and steps down without a majority; other
// replicas start an election after the timeout.
func (r *replica) tick() {
	r.w.timer(r.process, heartbeat, r.tick)
	now := r.clockNow()
	if r.role != leader {
		if now-r.heard >= r.timeout {
			r.campaign()
		}
		return
	}
	reachable := func(id uint32) bool { return id == r.id || now-r.peers[slotOf(id)].heard < leaderTimeout }
	if !r.majority(reachable) {
		r.stepDown(r.term)
		return
	}
	r.replicate()
}

// campaign starts an election.
func (r *replica) campaign() {
	r.resetElection()
	if !slices.Contains(r.members(), r.id) {
		return
	}
	if r.role == leader {
		r.stepDown(r.term) // it was deposed and does not know it
	}
	r.term++
	r.role, r.vote, r.leader, r.votes = candidate, r.id, -1, []uint32{r.id}
	term, index := r.term, r.last()
	logTerm := r.termAt(index)
	for _, id := range r.members() {
		r.post(id, func(o *replica) { o.requestVote(r.id, term, index, logTerm) })
	}
	r.count()
}

// post sends a message to another member, if it still exists.
func (r *replica) post(id uint32, do func(o *replica)) {
	slot := r.cluster.slots[slotOf(id)]
	if id == r.id {
		return
	}
	r.w.send(r.process, slot.process, false, func() {
		if slot.replica.id == id {
			do(slot.replica)
		}
	})
}

// requestVote handles a vote request.
func (r *replica) requestVote(from uint32, term, index, logTerm uint64) {
	if term > r.term && (r.role == leader || r.leader >= 0 && r.clockNow()-r.heard < electionTimeout) {
		return // there is a leader: ignore removed and returning replicas
	}
	r.see(term)
	mine := r.termAt(r.last())
	current := logTerm > mine || logTerm == mine && index >= r.last()
	yes := term == r.term && current && (r.vote == 0 || r.vote == from)
	if yes {
		r.vote = from
		r.resetElection()
	}
	voter, now := r.id, r.term
	r.post(from, func(o *replica) {
		o.see(now)
		if yes && o.role == candidate && o.term == term && !slices.Contains(o.votes, voter) {
			o.votes = append(o.votes, voter)
			o.count()
		}
	})
}

// see adopts a newer term.
func (r *replica) see(term uint64) {
	if term > r.term {
		r.stepDown(term)
	}
}

// stepDown makes the replica a follower.
func (r *replica) stepDown(term uint64) {
	if term > r.term {
		r.term, r.vote = term, 0
	}
	if r.role == leader {
		r.leader = -1
		r.resetElection()
	}
	r.role, r.votes, r.peers = follower, nil, nil
	if r.leadership != nil {
		r.endLeadership()
	}
}

// count makes a candidate the leader if a majority voted for it.
func (r *replica) count() {
	if r.role != candidate || !r.majority(func(id uint32) bool { return slices.Contains(r.votes, id) }) {
		return
	}
	r.role, r.leader = leader, r.slot
	r.peers = make([]peer, len(r.cluster.slots))
	for i := range r.peers {
		r.peers[i] = peer{next: r.last() + 1, heard: r.clockNow()}
	}
	r.beginLeadership()
}

// apply applies committed entries to the machine.
func (r *replica) apply() {
	for r.applied < r.commit {
		r.applied++
		e := r.at(r.applied)
		first := r.cluster.log.begin(r.applied, e)
		r.hash = mix(r.hash, r.applied)
		if e.restore != nil {
			m, err := machine.Restore(e.restore)
			if err != nil {
				panic(err)
			}
			r.machine = m
			if first {
				r.cluster.log.restored(m)
			}
		}
		results := r.execute(e, first)
		r.w.emit(property.Event{Kind: property.Applied, Who: r.name, Index: r.applied, Hash: r.hash})
		r.answerEntry(r.applied, e, results)
	}
	if r.applied-r.base.index > compactAfter {
		r.compact()
	}
}

// execute applies the commands of one entry.
func (r *replica) execute(e *entry, first bool) []machine.Result {
	commands, err := machine.Decode(e.data)
	if err != nil {
		panic(err)
	}
	results := make([]machine.Result, len(commands))
	for i, c := range commands {
		if first {
			r.cluster.log.before(c)
		}
		result, events := r.machine.Apply(c)
		results[i] = result
		r.hash = mix(r.hash, uint64(result.Code), uint64(result.Token), result.Generation)
		for j := range events {
			r.hash = mix(r.hash, uint64(events[j].Type), uint64(events[j].Nonce), uint64(events[j].Token))
		}
		if first {
			r.cluster.log.after(r.machine, c, result, events)
		}
		if r.leadership != nil {
			r.leadership.applied(c, result, events)
		}
	}
	return results
}

// compact replaces the applied log by a snapshot.
func (r *replica) compact() {
	members := r.base.members
	for i := r.base.index + 1; i <= r.applied; i++ {
		if m := r.at(i).members; m != nil {
			members = m
		}
	}
	term := r.termAt(r.applied)
	r.log = slices.Clone(r.log[r.applied-r.base.index:])
	r.base = image{index: r.applied, term: term, members: members, hash: r.hash, state: r.machine.Snapshot()}
}

// mix adds numbers to a hash (FNV-1a over 64-bit words).
func mix(hash uint64, words ...uint64) uint64 {
	for _, w := range words {
		hash = (hash ^ w) * 1099511628211
		hash ^= hash >> 29
	}
	return hash
}
