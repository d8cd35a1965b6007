package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// nodeTimeout is how long a node may take to answer. What comes later is heard
// all the same, as in production, where a lane waits for its socket.
const nodeTimeout = 300 * time.Millisecond

// voter is a client's side of the efficiency mode. What production does with
// goroutines and sockets it does with messages; what the votes amount to is
// decided by package quorum.
type voter struct {
	*client
	epoch   uint64 // that attempts carry; 0 if none is usable
	looking bool
	joins   int
	tries   int
}

var _ service = (*voter)(nil)

// ballot is one try of an attempt: its messages are sent once to every node.
type ballot struct {
	name     string
	attempt  *attempt
	epoch    uint64
	sent     lease.Instant
	votes    []quorum.Vote
	unknown  []bool
	old      bool // some node is in a later epoch, or has no data
	proposed fencing.Token
	outcome  quorum.Outcome
	token    fencing.Token
	ended    bool
}

// keep is how long an idle counter is kept. In production it is a day.
func (v *voter) keep() time.Duration { return 3 * v.policy.TTL }

func (v *voter) start() {
	v.epoch, v.looking = 0, false
	v.patrol()
}

// patrol looks at the nodes now and then.
func (v *voter) patrol() {
	v.look()
	for _, n := range v.w.redises {
		v.reach(n, func(now time.Duration) reply { return n.turn(now, v.keep()) }, nil)
	}
	v.w.timer(v.party, 500*time.Millisecond+v.w.random(2*time.Second), v.patrol)
}

// reach sends a message to a node, and its answer back.
func (v *voter) reach(n *redisNode, do func(now time.Duration) reply, got func(reply)) {
	life := v.life
	v.w.send(v.party, n.party, false, func() {
		r := do(n.clock.wall(v.w.now))
		if got == nil {
			return
		}
		v.w.send(n.party, v.party, true, func() {
			if life == v.life {
				got(r)
			}
		})
	})
}

func (v *voter) ask(a *attempt) {
	if a.over {
		return
	}
	if v.epoch == 0 {
		v.look()
		v.w.timer(v.party, 50*time.Millisecond+v.w.random(100*time.Millisecond), func() { v.ask(a) })
		return
	}
	n := len(v.w.redises)
	v.tries++
	b := &ballot{name: fmt.Sprintf("%s:%d.%d.%d", v.name, a.nonce, v.life, v.tries), attempt: a, epoch: v.epoch, sent: v.now(),
		votes: make([]quorum.Vote, n), unknown: make([]bool, n)}
	a.dealer = b
	for i, node := range v.w.redises {
		b.unknown[i] = true
		heard := false
		v.reach(node, func(now time.Duration) reply {
			return node.acquire(now, a.name, b.name, v.policy.TTL, b.epoch)
		}, func(r reply) {
			if !heard {
				heard = true
				v.voted(b, i, r)
			}
		})
		v.w.timer(v.party, nodeTimeout, func() {
			if !heard && b.votes[i].State == quorum.Pending {
				heard = true
				b.votes[i].State = quorum.Failed
				v.decide(b)
			}
		})
	}
	v.w.timer(v.party, min(2*nodeTimeout, v.policy.TTL/2), func() {
		if b.outcome == quorum.Wait && !b.ended {
			v.again(b)
		}
	})
}

// voted takes a node's answer to an acquire.
func (v *voter) voted(b *ballot, i int, r reply) {
	b.unknown[i] = false
	vote := &b.votes[i]
	switch r.word {
	case "ok":
		vote.State, vote.Token = quorum.Accepted, r.token
	case "held":
		vote.State, vote.Left, vote.Holder = quorum.Held, r.left, r.holder
	default:
		vote.State = quorum.Refused
		b.old = b.old || r.word == "epoch" || r.word == "empty"
	}
	v.decide(b)
}

// decide does what attempt.decide does in production.
func (v *voter) decide(b *ballot) {
	if b.ended || b.outcome != quorum.Wait {
		return
	}
	d := quorum.Decide(b.votes, b.proposed)
	switch d.Outcome {
	case quorum.Raise:
		b.proposed = d.Token
		for i, vote := range b.votes {
			if vote.State == quorum.Pending || vote.State == quorum.Accepted && vote.Token < d.Token {
				v.propose(b, i, d.Token)
			}
		}
	case quorum.Granted:
		b.outcome, b.token = d.Outcome, d.Token
		for i, vote := range b.votes {
			if vote.State == quorum.Accepted && vote.Token < d.Token && !vote.Raising {
				v.propose(b, i, d.Token)
			}
		}
		v.won(b)
	case quorum.Lost:
		b.outcome = d.Outcome
		v.again(b)
	}
}

// propose asks a node to accept a larger value.
func (v *voter) propose(b *ballot, i int, to fencing.Token) {
	node, heard := v.w.redises[i], false
	b.votes[i].Raising = true
	got := func(r reply) {
		if heard {
			return
		}
		heard = true
		vote := &b.votes[i]
		if to >= b.proposed {
			vote.Raising = false
		}
		switch {
		case r.word == "ok":
			vote.State, vote.Token = quorum.Accepted, max(vote.Token, to)
		case vote.State == quorum.Accepted && vote.Token >= to:
		case r.word == "":
			vote.State = quorum.Failed
		default:
			vote.State = quorum.Refused
		}
		v.decide(b)
	}
	v.reach(node, func(now time.Duration) reply {
		return node.raise(now, b.attempt.name, b.name, to, b.epoch)
	}, got)
	v.w.timer(v.party, nodeTimeout, func() { got(reply{}) })
}

// won makes a ballot a grant, if its time has not passed meanwhile.
func (v *voter) won(b *ballot) {
	if v.now().Since(b.sent) >= v.policy.TTL-v.policy.Drift {
		v.again(b)
		return
	}
	v.granted(b.attempt, b.attempt.key, b.token)
	v.w.timer(v.party, v.policy.Renew, func() { v.renew(b) })
}

// again ends a ballot that was lost, and tries once more or gives up.
func (v *voter) again(b *ballot) {
	v.end(b)
	a := b.attempt
	pause := 5*time.Millisecond + v.w.random(60*time.Millisecond)
	if b.old {
		v.look()
		pause += 8 * v.w.net.latency
	}
	held := quorum.HeldByOther(b.votes)
	switch {
	case a.over:
	case held && !a.wait:
		v.refused(a)
	default:
		if held {
			pause += min(quorum.FreeAfter(b.votes)/4, v.policy.TTL)
		}
		v.w.timer(v.party, pause, func() { v.ask(a) })
	}
}

// end releases a ballot on every node. Where the answer to the acquire is
// missing a copy may still be on its way, so a tombstone is left for it.
func (v *voter) end(b *ballot) {
	b.ended = true
	for i, node := range v.w.redises {
		v.endOn(b, node, b.unknown[i], 0)
	}
}

// endOn tells one node, again if it does not answer.
func (v *voter) endOn(b *ballot, node *redisNode, bury bool, times int) {
	tomb, heard := time.Duration(0), false
	if bury {
		tomb = max(10*v.policy.TTL, time.Minute)
	}
	v.reach(node, func(now time.Duration) reply {
		node.release(now, b.attempt.name, b.name, tomb)
		return reply{word: "ok"}
	}, func(reply) { heard = true })
	if times < 3 {
		v.w.timer(v.party, nodeTimeout+100*time.Millisecond<<(2*times), func() {
			if !heard {
				v.endOn(b, node, true, times+1)
			}
		})
	}
}

// renew prolongs a grant on a majority.
func (v *voter) renew(b *ballot) {
	if b.attempt.over || b.ended {
		return
	}
	v.step(AboutToRenew, func() {
		sent := v.now()
		if b.attempt.over || sent.Since(b.sent) >= v.policy.TTL { // others may hold it by now
			v.lost(b.attempt)
			return
		}
		yes, no, q := 0, 0, quorum.Size(len(v.w.redises))
		for i, node := range v.w.redises {
			heard, before := false, b.unknown[i]
			b.unknown[i] = true // a late copy must not take the lock back after its release
			v.reach(node, func(now time.Duration) reply {
				return node.renew(now, b.attempt.name, b.name, b.token, v.policy.TTL)
			}, func(r reply) {
				if heard || b.attempt.over {
					return
				}
				heard, b.unknown[i] = true, before
				switch r.word {
				case "ok":
					if yes++; yes == q && sent.Since(b.sent) > 0 {
						b.sent = sent
					}
				case "taken", "ended":
					if no++; no == q {
						v.lost(b.attempt)
					}
				}
			})
		}
		v.w.timer(v.party, v.policy.Renew, func() { v.renew(b) })
	})
}

func (v *voter) release(a *attempt) {
	if b, ok := a.dealer.(*ballot); ok && !b.ended {
		v.end(b)
	}
}

func (v *voter) sent(a *attempt) lease.Instant {
	return a.dealer.(*ballot).sent
}
