package sim

import (
	"slices"
	"time"

	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

// The pace of the replication, on a node's own clock.
const (
	heartbeat       = 300 * time.Millisecond
	electionTimeout = time.Second // and up to as much again
	compactAfter    = 80          // applied entries
)

// role is what a replica is in its term.
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

// image is the state of a replica at an index, as bytes.
type image struct {
	index   uint64
	term    uint64
	members []uint32
	hash    uint64
	state   []byte
}

// replica is one copy of the log and of the machine.
type replica struct {
	*process
	w       *World
	cluster *cluster
	slot    int
	id      uint32 // another one each time that the data is lost

	// On disk.
	term uint64
	vote uint32
	base image
	log  []entry // after base

	// In memory.
	role    role
	votes   []uint32
	commit  uint64
	applied uint64
	machine *machine.Machine
	hash    uint64
	leader  int           // slot, -1 if unknown
	heard   time.Duration // from a leader, on the own clock
	timeout time.Duration // how long it may be silent
	peers   []peer        // by slot, while it leads

	queue       *proposer.Queue[func(answer)]
	flight      *flight     // nil if no entry is in flight
	leadership  *leadership // while it leads
	leaderships uint64      // so far
}

// peer is what a leader knows of another replica.
type peer struct {
	id          uint32
	next, match uint64
	heard       time.Duration // on the leader's clock
}

// boot starts a replica from its disk.
func (r *replica) boot() {
	r.load()
	r.role, r.leader, r.votes, r.peers, r.leadership, r.flight = follower, -1, nil, nil, nil, nil
	r.queue = proposer.NewQueue[func(answer)](maxPending)
	r.listen()
	r.tick()
	r.keep()
}

// load makes the machine what the snapshot says.
func (r *replica) load() {
	m, err := machine.Restore(r.base.state)
	if err != nil {
		panic(err) // production has written it
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

// members is the newest membership in the log, committed or not.
func (r *replica) members() []uint32 {
	for i := len(r.log) - 1; i >= 0; i-- {
		if r.log[i].members != nil {
			return r.log[i].members
		}
	}
	return r.base.members
}

// changing reports whether a change of the membership is not committed yet.
func (r *replica) changing() bool {
	for i := r.commit + 1; i <= r.last(); i++ {
		if r.at(i).members != nil {
			return true
		}
	}
	return false
}

func (r *replica) listen() {
	r.heard = r.clockNow()
	r.timeout = electionTimeout + r.w.random(electionTimeout)
}

// tick looks at the time: a leader sends heartbeats, and gives up when it is
// alone; the others stand for election when nobody leads.
func (r *replica) tick() {
	r.w.timer(r.process, heartbeat, r.tick)
	now := r.clockNow()
	if r.role != leader {
		if now-r.heard >= r.timeout {
			r.campaign()
		}
		return
	}
	near := 0
	for _, id := range r.members() {
		if id == r.id || now-r.peers[slotOf(id)].heard < electionTimeout {
			near++
		}
	}
	if near < len(r.members())/2+1 {
		r.stepDown(r.term)
		return
	}
	r.replicate()
}

func (r *replica) campaign() {
	r.listen()
	if !slices.Contains(r.members(), r.id) {
		return
	}
	if r.role == leader {
		r.stepDown(r.term) // it was deposed, and has not heard of it
	}
	r.term++
	r.role, r.vote, r.leader, r.votes = candidate, r.id, -1, []uint32{r.id}
	term, index := r.term, r.last()
	logTerm := r.termAt(index)
	for _, id := range r.members() {
		r.post(id, func(o *replica) { o.askedForVote(r.id, term, index, logTerm) })
	}
	r.count()
}

// post sends a message to another member, if that is still there.
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

func (r *replica) askedForVote(from uint32, term, index, logTerm uint64) {
	if term > r.term && (r.role == leader || r.leader >= 0 && r.clockNow()-r.heard < electionTimeout) {
		return // someone leads: who was taken out, or was away, does not disturb
	}
	r.see(term)
	mine := r.termAt(r.last())
	current := logTerm > mine || logTerm == mine && index >= r.last()
	yes := term == r.term && current && (r.vote == 0 || r.vote == from)
	if yes {
		r.vote = from
		r.listen()
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

// see takes notice of a newer term.
func (r *replica) see(term uint64) {
	if term > r.term {
		r.stepDown(term)
	}
}

func (r *replica) stepDown(term uint64) {
	if term > r.term {
		r.term, r.vote = term, 0
	}
	if r.role == leader {
		r.leader = -1
		r.listen()
	}
	r.role, r.votes, r.peers = follower, nil, nil
	if r.leadership != nil {
		r.endLeadership()
	}
}

// count makes a candidate the leader, if a majority has voted for it.
func (r *replica) count() {
	n := 0
	for _, id := range r.members() {
		if slices.Contains(r.votes, id) {
			n++
		}
	}
	if r.role != candidate || n < len(r.members())/2+1 {
		return
	}
	r.role, r.leader = leader, r.slot
	r.peers = make([]peer, len(r.cluster.slots))
	for i := range r.peers {
		r.peers[i] = peer{next: r.last() + 1, heard: r.clockNow()}
	}
	r.beginLeadership()
}

// apply runs what is committed through the machine.
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

// compact replaces the log up to here by the state.
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

// mix adds numbers to a hash (FNV-1a, a number at a time).
func mix(hash uint64, words ...uint64) uint64 {
	for _, w := range words {
		hash = (hash ^ w) * 1099511628211
		hash ^= hash >> 29
	}
	return hash
}
