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

// spreadAfter is the time for which a lease is held before it is sent to all nodes.
const spreadAfter = 20 * time.Millisecond

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
	old     bool // some node has a newer version
	decided bool
}

func (t *round) call(v *redisClient) redisnode.Call {
	return redisnode.Call{Version: t.version, Fleet: t.fleet, Nonce: t.name, TTL: v.policy.TTL.Milliseconds(),
		Details: v.name}
}

func (v *redisClient) start() { v.granted = map[string]*round{} }

func (v *redisClient) open(_ *clientcore.Session, done func(error)) {
	v.w.timer(v.process, 0, func() { done(nil) })
}

func (v *redisClient) acquire(_ *clientcore.Session, request engine.Request, done func(engine.Grant, error)) {
	a := &asking{request: request, limit: v.w.now + callTimeout}
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
	v.rounds++
	t := &round{authority: under, asking: a, name: fmt.Sprintf("%s.%d.%d", v.name, v.life, v.rounds), sent: v.now(),
		core: quorum.NewAttempt(len(under.servers))}
	order := make([]int, len(t.servers))
	for i := range order {
		order[i] = i
	}
	v.send(t, t.core.Ask(quorum.First(a.request.Resources[0], order, quorum.All(len(order)))))
	limit := min(2*nodeTimeout, v.policy.TTL/2)
	v.w.timer(v.process, min(nodeTimeout/3, limit/4), func() {
		if !t.decided {
			v.send(t, t.core.AskRest())
		}
	})
	v.w.timer(v.process, limit, func() {
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

// send sends requests of a round to the nodes.
func (v *redisClient) send(t *round, requests quorum.Requests) {
	for i := range requests.Acquire.Each {
		v.request(t, i, func(node *redisnode.Node, now int64) redisnode.Reply {
			call := t.call(v)
			call.Token = requests.Granted
			return node.Acquire(now, t.request.Resources, call)
		}, func(r redisnode.Reply, ok bool) {
			t.old = t.old || r.Reason == redisnode.OtherFleet
			v.send(t, t.core.Answer(i, voteOf(r, ok), !ok))
		})
	}
	for i := range requests.Raise.Each {
		v.request(t, i, func(node *redisnode.Node, now int64) redisnode.Reply {
			call := t.call(v)
			call.Token = requests.RaiseTo
			return node.Raise(now, t.request.Resources, call)
		}, func(r redisnode.Reply, ok bool) {
			vote := voteOf(r, ok)
			if ok && r.Reason != redisnode.Accepted {
				vote.State = quorum.Refused
			}
			v.send(t, t.core.Raised(i, requests.RaiseTo, vote, !ok))
		})
	}
}

// request calls one node for a round, and then acts on the decision, if there is one.
func (v *redisClient) request(t *round, i int, do func(node *redisnode.Node, now int64) redisnode.Reply,
	got func(redisnode.Reply, bool)) {
	call(v.w, v.process, t.servers[i], false, func(node *redisnode.Node, now int64) redisnode.Reply {
		if !t.reaches(i, node) {
			return redisnode.Reply{Reason: redisnode.Empty}
		}
		return do(node, now)
	}, func(r redisnode.Reply, ok bool) {
		t.old = t.old || r.Reason == redisnode.OldVersion
		got(r, ok)
		v.act(t)
	})
}

// act acts on the decision.
func (v *redisClient) act(t *round) {
	if t.decided || t.core.Ended || t.core.Outcome == quorum.Wait {
		return
	}
	t.decided = true
	if t.core.Outcome != quorum.Granted || t.over || v.now().Since(t.sent) >= v.policy.TTL-v.policy.Drift {
		v.again(t)
		return
	}
	v.granted[t.name] = t
	v.w.timer(v.process, spreadAfter, func() { v.send(t, t.core.SpreadGrant()) })
	t.done(engine.Grant{Token: t.core.Token, Mode: engine.Efficiency, Name: t.name, Sent: t.sent}, nil)
}

// again ends a round that was not granted, and begins another one or gives up.
func (v *redisClient) again(t *round) {
	v.end(t, func(error) {})
	pause, held := 5*time.Millisecond+v.w.random(60*time.Millisecond), quorum.HeldByOther(t.core.Votes)
	if held {
		pause += min(quorum.FreeAfter(t.core.Votes)/4, v.policy.TTL)
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

// end releases a round on the nodes that may have it. A node whose answer is missing may receive the call
// later and must refuse it. done gets an error unless a quorum confirms.
func (v *redisClient) end(t *round, done func(error)) {
	token, cause := fencing.None, redisnode.Withdrawn
	if v.granted[t.name] != nil {
		token, cause = t.core.Token, redisnode.Released
	}
	release, late := t.core.End()
	answers := quorum.Release{Nodes: len(t.servers), Free: len(t.servers) - release.Count()}
	missing := release.Count()
	for i := range release.Each {
		call(v.w, v.process, t.servers[i], false, func(node *redisnode.Node, now int64) bool {
			node.Release(now, t.request.Resources, redisnode.End{Nonce: t.name, Token: token, Cause: cause,
				Wake: redisnode.WakeNext, Refuse: late.Has(i)})
			return true
		}, func(_, ok bool) {
			if ok {
				answers.Free++
			} else {
				answers.Failed++
			}
			if missing--; missing > 0 {
				return
			}
			if !answers.Confirmed() {
				done(engine.ErrUncertain)
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

func (v *redisClient) update(_ *clientcore.Session, held engine.Held, done func(error)) {
	v.renewOne(held, done)
}

func (v *redisClient) renewOne(h engine.Held, done func(error)) {
	t := v.granted[h.Name]
	under, err := v.authorize(h.Resources[0])
	if t == nil || err != nil || under.fleet != t.fleet || !t.core.Renew() {
		v.w.timer(v.process, 0, func() { done(engine.ErrUncertain) }) // the lease expires
		return
	}
	answers, decided := quorum.Renewal{Nodes: len(t.servers)}, false
	for i, s := range t.servers {
		call(v.w, v.process, s, false, func(node *redisnode.Node, now int64) redisnode.Reply {
			if !under.reaches(i, node) {
				return redisnode.Reply{Reason: redisnode.Empty}
			}
			call := t.call(v)
			call.Version, call.Token, call.TTL = under.version, t.core.Token, h.TTL.Milliseconds()
			return node.Renew(now, h.Resources, call)
		}, func(r redisnode.Reply, ok bool) {
			t.core.Renewed(i, !ok)
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
				done(engine.ErrUncertain)
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
