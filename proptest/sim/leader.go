package sim

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

const (
	// maxPending bounds the operations that wait for the log of a replica.
	maxPending = 1 << 16
	// expireTimeout is the time after which a leader treats the proposal of an Expire
	// or EndDelay as failed. The command may still commit.
	expireTimeout = 20 * time.Millisecond
	// A leader reads its deadlines at least every maxCheck, since its clock may jump,
	// and at most every minCheck, since its clock may stand still.
	minCheck = 5 * time.Millisecond
	maxCheck = 250 * time.Millisecond
	// adoptPause is the time between two sessions, or lock-delays, that a new leader takes over.
	adoptPause = 20 * time.Millisecond
	// endRequests is the number of requests that end in one entry: one, so that faults come
	// between the requests of a session.
	endRequests = 1
)

// leadership is one period in which a replica leads. The deadlines are those of the
// production lessor; the simulator supplies clock, timers and delivery.
type leadership struct {
	*replica
	number    uint64         // for proposer.Operation
	lessor    *lessor.Lessor // nil until Lead is applied, and during a restore
	restoring bool
	timer     int           // number of the last timer; earlier ones are obsolete
	heldUp    time.Duration // commands of the lessor are delivered after this time
	hub       *hub.Hub      // of the callers that wait for a lock
}

// flight is the entry that a replica proposed and that is not applied yet.
type flight struct {
	batch *proposer.Batch[func(answer)]
	index uint64
	term  uint64
	sent  engine.Instant
}

func (r *replica) instant() engine.Instant { return r.clock.instant(r.w.now) }

// beginLeadership makes an elected replica commit Lead.
func (r *replica) beginLeadership() {
	r.leaderships++
	r.leadership = &leadership{replica: r, number: r.leaderships, hub: hub.New()}
	r.leadership.lead()
}

// lead commits Lead. The leader serves once it is applied.
func (l *leadership) lead() {
	sent := l.instant()
	l.enqueue(&machine.Lead{}, 0, func(a answer) {
		if a.state != served || l.replica.leadership != l {
			return
		}
		if l.machine.Generation() != a.result.Generation {
			l.w.timer(l.process, lessor.RetryPause, func() {
				if l.replica.leadership == l {
					l.lead()
				}
			})
			return
		}
		l.restoring = false
		l.lessor = lessor.New(l.instant(), sent, a.result.Generation, l.machine.HasEnding(), lessor.ProofLife)
		l.adopt()
		l.checkDeadlines()
	})
}

// adopt takes over the sessions and lock-delays one at a time, while the leader serves.
func (l *leadership) adopt() {
	if l.lessor.Adopt(l.instant(), l.machine, 1) {
		l.w.timer(l.process, adoptPause, func() {
			if l.replica.serving() == l {
				l.adopt()
				l.checkDeadlines()
			}
		})
	}
}

// endLeadership answers all operations: the outcome of those in flight is uncertain, waiting
// requests stay in the queue, and the others have no effect.
func (r *replica) endLeadership() {
	r.leadership.hub.Abort(engine.ErrUncertain)
	r.leadership = nil
	refuse := func(operations []proposer.Operation[func(answer)], s state) {
		for _, op := range operations {
			op.Caller(answer{state: s, leader: -1})
		}
	}
	if f := r.flight; f != nil {
		r.flight = nil
		r.queue.Done()
		refuse(f.batch.Operations, uncertain)
	}
	for r.queue.Len() > 0 {
		batch, refused := r.queue.Next(0)
		refuse(refused, notLeader)
		if batch != nil {
			r.queue.Done()
			refuse(batch.Operations, notLeader)
		}
	}
}

// serving returns the leadership of a replica that serves clients, or nil.
func (r *replica) serving() *leadership {
	if l := r.leadership; l != nil && l.lessor != nil {
		return l
	}
	return nil
}

// enqueue adds an operation to the log. Without a command it is a barrier.
func (r *replica) enqueue(c machine.Command, leadership uint64, reply func(answer)) {
	if !r.queue.Add(proposer.Operation[func(answer)]{Command: c, Leadership: leadership, Caller: reply}) {
		reply(answer{state: uncertain, leader: -1})
		return
	}
	r.flush()
}

// flush proposes the next batch, unless an entry is in flight.
func (r *replica) flush() {
	number := uint64(0)
	if r.leadership != nil {
		number = r.leadership.number
	}
	batch, refused := r.queue.Next(number)
	for _, op := range refused {
		op.Caller(answer{state: notLeader, leader: r.hint()})
	}
	if batch != nil {
		// Before append, since a single member commits at once.
		r.flight = &flight{batch: batch, index: r.last() + 1, term: r.term, sent: r.instant()}
		r.append(entry{data: machine.Encode(batch.Commands...)})
	}
}

// answerEntry answers the operations of an applied entry.
func (r *replica) answerEntry(index uint64, e *entry, results []machine.Result) {
	if l := r.leadership; e.restore != nil && l != nil && l.restoring {
		l.lead()
	}
	f := r.flight
	if f == nil || index != f.index || e.term != f.term {
		return
	}
	r.flight = nil
	r.queue.Done()
	if l := r.serving(); l != nil {
		l.lessor.Proven(f.sent)
	}
	f.batch.Answer(results, func(reply func(answer), result machine.Result) {
		reply(answer{state: served, leader: r.slot, result: result})
	})
	if r.leadership != nil {
		r.flush()
	}
}

// applied passes an applied command to the lessor, and answers waiting clients.
func (l *leadership) applied(c machine.Command, result machine.Result, events []machine.Event) {
	if l.lessor == nil {
		return
	}
	if lessor.Affects(c, events) {
		l.lessor.Applied(l.instant(), c, result, events)
		l.checkDeadlines()
	}
	for _, call := range l.hub.Applied(l.machine, c, result, events, engine.Instant{}) {
		call()
	}
}

// checkDeadlines proposes the commands that are due, and sets a timer for the next.
func (l *leadership) checkDeadlines() {
	commands, wait := l.lessor.Due(l.instant())
	for _, c := range commands {
		l.proposeDue(c)
	}
	l.timer++
	number := l.timer
	l.w.timer(l.process, min(max(wait, minCheck), maxCheck), func() {
		if l.timer == number && l.replica.serving() == l {
			l.checkDeadlines()
		}
	})
}

// proposeDue sends a command of the lessor to the leader. The message may be late:
// another replica may lead when it arrives, or this one may have proposed the command
// again. Production drops such a command; the machine must ignore it.
func (l *leadership) proposeDue(c machine.Command) {
	if _, ok := c.(*machine.EndRequests); ok {
		c = &machine.EndRequests{Max: endRequests}
	}
	r, deliveries, done := l.replica, 0, false
	finish := func(committed bool) {
		if done {
			return
		}
		done = true
		if !committed && r.serving() == l {
			l.lessor.Failed(l.instant(), []machine.Command{c})
			l.checkDeadlines()
		}
	}
	var deliver func()
	deliver = func() {
		if deliveries++; deliveries > 40 {
			return
		}
		at := r.cluster.runningLeader()
		if at == nil {
			r.w.timer(r.process, r.w.random(500*time.Millisecond), deliver)
			return
		}
		at.propose(c, func(a answer) {
			switch {
			case a.state == served:
				finish(true)
			case !r.down:
				r.w.timer(r.process, r.w.random(200*time.Millisecond), deliver)
			}
		})
	}
	if r.w.chance(10) {
		l.heldUp = max(l.heldUp, r.w.now+r.w.random(r.w.plan.TTL))
	}
	r.w.timer(r.process, max(r.w.latency(), l.heldUp-r.w.now), deliver)
	r.w.timer(r.process, expireTimeout, func() { finish(false) })
}

// propose commits a command on this replica, if it serves.
func (r *replica) propose(c machine.Command, reply func(answer)) {
	l := r.serving()
	if l == nil {
		reply(answer{state: notLeader, leader: r.hint()})
		return
	}
	r.enqueue(c, l.number, reply)
}

// hint returns the slot of the leader, or -1.
func (r *replica) hint() int {
	if r.leader == r.slot {
		return -1
	}
	return r.leader
}

// acquire commits an Acquire. If the attempt has to wait, the answer is sent when it is
// granted or cancelled.
func (r *replica) acquire(c *machine.Acquire, reply func(answer)) {
	r.propose(c, func(a answer) {
		l, attempt := r.serving(), hub.Attempt{Session: c.Session, Incarnation: c.Incarnation, Nonce: c.Request.Nonce}
		if a.state != served || a.result.Code != machine.Queued || !c.Request.Wait || l == nil {
			reply(a)
		} else if a.result = hub.OutcomeOf(l.machine, attempt); a.result.Code != machine.Queued {
			reply(a) // a later command of the entry took it out of the queue
		} else {
			l.hub.Expect(attempt, hub.NewWait(func(w *hub.Wait) {
				a.result, a.err = w.Result, w.Err
				reply(a)
			}))
		}
	})
}

// renew extends a session. A leader whose last proof of leadership is too old first
// commits a barrier.
func (r *replica) renew(id engine.SessionID, incarnation uint64, reply func(answer)) {
	l, arrived := r.serving(), r.arrival()
	switch {
	case l == nil:
		reply(answer{state: notLeader, leader: r.hint()})
	case l.lessor.Proved(arrived.instant):
		reply(answer{state: r.extend(arrived, id, incarnation, r.w.plan.TTL), leader: r.slot})
	default:
		l.renewFrom(arrived, id, incarnation, 0) // it does not expire while the barrier is in flight
		r.enqueue(nil, l.number, func(a answer) {
			if a.state == served {
				a.state = r.extend(arrived, id, incarnation, r.w.plan.TTL)
			}
			reply(a)
		})
	}
}

// update changes a session and a lease of it, and extends the session by the TTL of the
// update.
func (r *replica) update(c *machine.Update, reply func(answer)) {
	arrived := r.arrival()
	r.propose(c, func(a answer) {
		switch {
		case a.state == served && a.result.Code == machine.NoSession:
			a.state = expired
		case a.state == served && a.result.Code == machine.Done:
			a.state = r.extend(arrived, c.Session, c.Incarnation, c.TTL)
		}
		reply(a)
	})
}

// arrival is when a request arrived, on the clock of the replica and in the world.
type arrival struct {
	instant engine.Instant
	at      time.Duration
}

func (r *replica) arrival() arrival { return arrival{r.instant(), r.w.now} }

// renewFrom renews a session from an arrival, for ttl or the session's own. It reports false
// if the session has ended.
func (l *leadership) renewFrom(a arrival, id engine.SessionID, incarnation uint64, ttl time.Duration) bool {
	l.lessor.AdoptOne(l.machine, id)
	return l.lessor.Renew(a.instant, id, incarnation, ttl)
}

// extend is renew for a caller that has a proof of leadership.
func (r *replica) extend(a arrival, id engine.SessionID, incarnation uint64, ttl time.Duration) state {
	l := r.serving()
	switch {
	case l == nil:
		return uncertain
	case !l.renewFrom(a, id, incarnation, ttl):
		return expired
	}
	r.cluster.log.extended(id, incarnation, a.at, ttl)
	return extended
}
