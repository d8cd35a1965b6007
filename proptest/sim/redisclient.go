package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// redisClient is a client of the efficiency mode. It does with messages what
// redlockadapter does with goroutines and connections; quorum.Attempt decides.
type redisClient struct {
	*client
	// authorize returns the version and the fleet of a lock in efficiency mode, or why
	// it is not in this mode.
	authorize func(name fencing.Resource) (authority, error)
	// outdated is called when nodes have a newer version.
	outdated func()
	rounds   int
}

var _ service = (*redisClient)(nil)

// authority is the version and the fleet of a round.
type authority struct {
	version uint64
	fleet   string
	servers []*redisServer
	lives   []string // that calls under the version go to; nil without a service
}

// reaches reports whether calls go to the server that an address leads to.
func (a *authority) reaches(i int, node *redisnode.Node) bool {
	return a.lives == nil || recovery.ServerOf(a.lives[i]) == node.Life()
}

// round is one round of an attempt: one acquire to every node.
type round struct {
	authority
	name    string
	attempt *attempt
	sent    engine.Instant
	core    *quorum.Attempt
	unknown []bool // nodes that may still execute an unanswered call
	old     bool   // some node has a newer version
	decided bool
	granted bool
	ended   bool
}

func (t *round) call(v *redisClient) redisnode.Call {
	return redisnode.Call{Version: t.version, Fleet: t.fleet, Nonce: t.name, TTL: v.policy.TTL.Milliseconds(), Details: v.name}
}

func (v *redisClient) start() {}

func (v *redisClient) acquire(a *attempt) {
	if a.over {
		return
	}
	under, err := v.authorize(a.name)
	if err != nil {
		v.w.timer(v.process, 50*time.Millisecond+v.w.random(100*time.Millisecond), func() { v.service.acquire(a) })
		return
	}
	n := len(under.servers)
	v.rounds++
	t := &round{authority: under, name: fmt.Sprintf("%s.%d.%d.%d", v.name, v.life, a.nonce, v.rounds), attempt: a, sent: v.now(),
		core: quorum.NewAttempt(n), unknown: make([]bool, n)}
	a.state = t
	for i, s := range t.servers {
		t.unknown[i] = true
		call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) redisnode.Reply {
			if !t.reaches(i, node) {
				return redisnode.Reply{Reason: redisnode.Empty}
			}
			return node.Acquire(now, []resource{a.name}, t.call(v))
		}, func(r redisnode.Reply, ok bool) {
			t.unknown[i] = !ok
			t.old = t.old || r.Reason == redisnode.OldVersion || r.Reason == redisnode.OtherFleet
			v.act(t, t.core.Answer(i, voteOf(r, ok)))
		})
	}
	v.w.timer(v.process, min(2*nodeTimeout, v.policy.TTL/2), func() {
		if !t.decided {
			t.decided = true
			v.again(t)
		}
	})
}

// voteOf converts a node's reply to a vote.
func voteOf(r redisnode.Reply, ok bool) quorum.Vote {
	switch {
	case !ok:
		return quorum.Vote{State: quorum.Failed}
	case r.Reason == redisnode.Accepted:
		return quorum.Vote{State: quorum.Accepted, Token: r.Token}
	case r.Reason == redisnode.Held:
		return quorum.Vote{State: quorum.Held, Left: time.Duration(r.Left) * time.Millisecond, Holder: r.Nonce}
	}
	return quorum.Vote{State: quorum.Refused}
}

// act sends raises, and acts on the decision.
func (v *redisClient) act(t *round, raises []quorum.Raise) {
	if t.ended {
		return
	}
	for _, r := range raises {
		call(v.w, v.process, t.servers[r.Node], false, func(node *redisnode.Node, now int64) redisnode.Reply {
			if !t.reaches(r.Node, node) {
				return redisnode.Reply{Reason: redisnode.Empty}
			}
			call := t.call(v)
			call.Token = r.Token
			return node.Raise(now, []resource{t.attempt.name}, call)
		}, func(reply redisnode.Reply, ok bool) {
			t.unknown[r.Node] = t.unknown[r.Node] || !ok
			t.old = t.old || reply.Reason == redisnode.OldVersion
			vote := voteOf(reply, ok)
			if ok && reply.Reason != redisnode.Accepted {
				vote.State = quorum.Refused
			}
			v.act(t, t.core.Raised(r.Node, r.Token, vote))
		})
	}
	if t.decided || t.core.Outcome() == quorum.Wait {
		return
	}
	t.decided = true
	if t.core.Outcome() == quorum.Granted && v.now().Since(t.sent) < v.policy.TTL-v.policy.Drift {
		t.granted, t.attempt.unlogged = true, true
		v.granted(t.attempt, t.attempt.key, t.core.Token())
		v.w.timer(v.process, v.policy.Renew, func() { v.renew(t) })
		return
	}
	v.again(t)
}

// again ends a round that was not granted, and begins another one or gives up.
func (v *redisClient) again(t *round) {
	v.end(t)
	a := t.attempt
	pause := 5*time.Millisecond + v.w.random(60*time.Millisecond)
	if t.old {
		v.outdated()
		pause += 8 * v.w.net.latency
	}
	held := quorum.HeldByOther(t.core.Votes())
	switch {
	case a.over:
	case held && !a.wait:
		v.denied(a)
	default:
		if held {
			pause += min(quorum.FreeAfter(t.core.Votes())/4, v.policy.TTL)
		}
		v.w.timer(v.process, pause, func() { v.service.acquire(a) })
	}
}

// end releases a round on every node. A node whose answer is missing may receive the call
// later and must refuse it.
func (v *redisClient) end(t *round) {
	t.ended = true
	for i, s := range t.servers {
		v.endOn(t, s, t.unknown[i], 0)
	}
}

// endOn releases a round on one node, and repeats it if the node does not answer.
func (v *redisClient) endOn(t *round, s *redisServer, refuse bool, times int) {
	token := fencing.None
	if t.granted {
		token = t.core.Token()
	}
	call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) bool {
		node.Release(now, []resource{t.attempt.name}, redisnode.End{Nonce: t.name, Token: token, Cause: redisnode.Released,
			Wake: redisnode.WakeNext, Refuse: refuse})
		return true
	}, func(_, ok bool) {
		if !ok && times < 3 {
			v.w.timer(v.process, 100*time.Millisecond<<(2*times), func() { v.endOn(t, s, true, times+1) })
		}
	})
}

// renew extends a lease on a quorum of the nodes, under the current topology.
func (v *redisClient) renew(t *round) {
	if t.attempt.over || t.ended {
		return
	}
	v.step(AboutToRenew, func() {
		sent := v.now()
		if t.attempt.over || sent.Since(t.sent) >= v.policy.TTL { // others may hold the lock
			v.lost(t.attempt)
			return
		}
		v.w.timer(v.process, v.policy.Renew, func() { v.renew(t) })
		under, err := v.authorize(t.attempt.name)
		if err != nil || under.fleet != t.fleet {
			return // the lease expires
		}
		yes, no, q := 0, 0, quorum.Size(len(t.servers))
		for i, s := range t.servers {
			before := t.unknown[i]
			t.unknown[i] = true // a late copy must not take the lock back after its release
			call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) redisnode.Reply {
				if !under.reaches(i, node) {
					return redisnode.Reply{Reason: redisnode.Empty}
				}
				call := t.call(v)
				call.Version, call.Token = under.version, t.core.Token()
				return node.Renew(now, []resource{t.attempt.name}, call)
			}, func(r redisnode.Reply, ok bool) {
				if t.attempt.over || !ok {
					return
				}
				t.unknown[i] = before
				switch r.Reason {
				case redisnode.Accepted:
					if yes++; yes == q && sent.Since(t.sent) > 0 {
						t.sent = sent
					}
				case redisnode.Taken, redisnode.Ended:
					if no++; no == q {
						v.lost(t.attempt)
					}
				case redisnode.OldVersion:
					v.outdated()
				}
			})
		}
	})
}

func (v *redisClient) release(a *attempt) {
	if t, ok := a.state.(*round); ok && !t.ended {
		v.end(t)
	}
}

func (v *redisClient) sent(a *attempt) engine.Instant { return a.state.(*round).sent }
