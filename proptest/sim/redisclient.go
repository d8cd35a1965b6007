package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// redisClient provides the locks of the efficiency mode. It does with messages what
// redlockadapter does with goroutines and connections; quorum.Attempt decides.
type redisClient struct {
	*client
	// authorize returns the version and the fleet of a lock in efficiency mode, or why
	// it is not in this mode.
	authorize func(name fencing.Resource) (authority, error)
	granted   map[string]*round // leases, by their names
	rounds    int
}

var _ locks = (*redisClient)(nil)

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

// asking is an acquire: one round after the other until a decision.
type asking struct {
	session engine.SessionID
	request engine.Request
	done    func(engine.Grant, error)
	limit   time.Duration // of one that does not wait
	over    bool
}

// round is one acquire to every node.
type round struct {
	authority
	*asking
	name    string
	sent    engine.Instant
	core    *quorum.Attempt
	unknown []bool // nodes that may still execute an unanswered call
	old     bool   // some node has a newer version
	decided bool
	ended   bool
}

func (t *round) call(v *redisClient) redisnode.Call {
	return redisnode.Call{Version: t.version, Fleet: t.fleet, Nonce: t.name, TTL: v.policy.TTL.Milliseconds(), Details: v.name}
}

func (v *redisClient) start() { v.granted = map[string]*round{} }

func (v *redisClient) open(_ *clientcore.Session, done func(error)) {
	v.w.timer(v.process, 0, func() { done(nil) })
}

func (v *redisClient) acquire(s *clientcore.Session, request engine.Request, done func(engine.Grant, error)) {
	a := &asking{session: s.ID(), request: request, limit: v.w.now + callTimeout}
	a.done = func(g engine.Grant, err error) {
		if !a.over {
			a.over = true
			done(g, err)
		}
	}
	if request.Wait {
		a.limit = v.w.now + waitTimeout // the client asks again
	}
	v.try(a)
}

// try starts a round.
func (v *redisClient) try(a *asking) {
	under, err := v.authorize(a.request.Resources[0])
	if err != nil {
		a.done(engine.Grant{}, err)
		return
	}
	n := len(under.servers)
	v.rounds++
	t := &round{authority: under, asking: a, name: fmt.Sprintf("%s.%d.%d", v.name, v.life, v.rounds), sent: v.now(),
		core: quorum.NewAttempt(n), unknown: make([]bool, n)}
	for i, s := range t.servers {
		t.unknown[i] = true
		call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) redisnode.Reply {
			if !t.reaches(i, node) {
				return redisnode.Reply{Reason: redisnode.Empty}
			}
			return node.Acquire(now, a.request.Resources, t.call(v))
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
			return node.Raise(now, t.request.Resources, call)
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
	if t.core.Outcome() == quorum.Granted && !t.over && v.now().Since(t.sent) < v.policy.TTL-v.policy.Drift {
		v.granted[t.name] = t
		t.done(engine.Grant{Token: t.core.Token(), Mode: engine.Efficiency, Name: t.name, Sent: t.sent}, nil)
		return
	}
	v.again(t)
}

// again ends a round that was not granted, and begins another one or gives up.
func (v *redisClient) again(t *round) {
	v.end(t, func(error) {})
	pause, held := 5*time.Millisecond+v.w.random(60*time.Millisecond), quorum.HeldByOther(t.core.Votes())
	if held {
		pause += min(quorum.FreeAfter(t.core.Votes())/4, v.policy.TTL)
	}
	switch {
	case t.over:
	case t.old:
		t.done(engine.Grant{}, engine.ErrVersion)
	case held && !t.request.Wait:
		t.done(engine.Grant{}, engine.ErrHeld)
	case v.w.now+pause >= t.limit:
		t.done(engine.Grant{}, engine.ErrUnavailable)
	default:
		v.w.timer(v.process, pause, func() {
			if !t.over {
				v.try(t.asking)
			}
		})
	}
}

// end releases a round on every node. A node whose answer is missing may receive the call
// later and must refuse it. done gets an error unless a quorum confirms.
func (v *redisClient) end(t *round, done func(error)) {
	t.ended = true
	token := fencing.None
	if v.granted[t.name] != nil {
		token = t.core.Token()
	}
	confirmed, missing := 0, len(t.servers)
	for i, s := range t.servers {
		refuse := t.unknown[i]
		call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) bool {
			node.Release(now, t.request.Resources, redisnode.End{Nonce: t.name, Token: token, Cause: redisnode.Released,
				Wake: redisnode.WakeNext, Refuse: refuse})
			return true
		}, func(_, ok bool) {
			t.unknown[i] = t.unknown[i] || !ok
			if ok {
				confirmed++
			}
			if missing--; missing > 0 {
				return
			}
			if confirmed < quorum.Size(len(t.servers)) {
				done(errTimeout)
				return
			}
			done(nil)
		})
	}
}

// renew extends leases, each on a quorum of the nodes, under the current topology.
func (v *redisClient) renew(s *clientcore.Session, held []engine.Held, done func([]engine.Nonce, error)) {
	var extended []engine.Nonce
	missing := len(held)
	if missing == 0 {
		v.w.timer(v.process, 0, func() { done(nil, nil) })
	}
	for _, h := range held {
		v.renewOne(h, func(err error) {
			switch {
			case err == nil:
				extended = append(extended, h.Nonce)
			case errors.Is(err, engine.ErrLost):
				v.reportLost(s, h.Nonce, err)
			}
			if missing--; missing == 0 {
				done(extended, nil)
			}
		})
	}
}

func (v *redisClient) renewOne(h engine.Held, done func(error)) {
	t := v.granted[h.Name]
	under, err := v.authorize(h.Resources[0])
	if t == nil || err != nil || under.fleet != t.fleet {
		v.w.timer(v.process, 0, func() { done(errTimeout) }) // the lease expires
		return
	}
	answers, decided := quorum.Renewal{Nodes: len(t.servers)}, false
	for i, s := range t.servers {
		before := t.unknown[i]
		t.unknown[i] = true // a late copy must not take the lock back after its release
		call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) redisnode.Reply {
			if !under.reaches(i, node) {
				return redisnode.Reply{Reason: redisnode.Empty}
			}
			call := t.call(v)
			call.Version, call.Token = under.version, t.core.Token()
			return node.Renew(now, h.Resources, call)
		}, func(r redisnode.Reply, ok bool) {
			if ok && !t.ended {
				t.unknown[i] = before
			}
			switch {
			case ok && r.Reason == redisnode.Accepted:
				answers.Extended++
			case ok && (r.Reason == redisnode.Taken || r.Reason == redisnode.Ended):
				answers.Lost++
			default:
				answers.Failed++
			}
			if r.Reason == redisnode.OldVersion && v.follow != nil {
				v.follow.load()
			}
			outcome := answers.Outcome()
			if decided || outcome == quorum.RenewalWaits {
				return
			}
			decided = true
			switch outcome {
			case quorum.RenewalExtended:
				done(nil)
			case quorum.RenewalLost:
				done(engine.ErrTaken)
			default:
				done(errTimeout)
			}
		})
	}
}

func (v *redisClient) release(_ *clientcore.Session, held engine.Held, done func(error)) {
	t := v.granted[held.Name]
	if t == nil { // an ask without an answer has released its rounds
		v.w.timer(v.process, 0, func() { done(nil) })
		return
	}
	v.end(t, func(err error) {
		if err == nil {
			delete(v.granted, held.Name)
		}
		done(err)
	})
}

func (v *redisClient) close(s *clientcore.Session, held []engine.Held) {
	for _, h := range held {
		v.release(s, h, func(error) {})
	}
}
