package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// router is a client of a service with both modes. It follows the topology of any
// member, possibly an old one, and engine.Topology.Route decides which way a lock
// goes.
type router struct {
	*client
	raft     *raftClient
	redis    *redisClient
	topology engine.Topology
	stale    time.Duration // it hears of no newer topology until then
	asking   bool
}

var _ service = (*router)(nil)

func newRouter(c *client) *router {
	r := &router{client: c, raft: &raftClient{client: c}}
	r.redis = &redisClient{client: c, outdated: r.look, authorize: r.authorize}
	return r
}

// authorize reads mode, version and fleet from one topology.
func (r *router) authorize(name fencing.Resource) (authority, error) {
	mode, err := r.route(name)
	if err == nil && mode != engine.Efficiency {
		err = fmt.Errorf("%w: %s", engine.ErrModeMismatch, name)
	}
	if err != nil {
		return authority{}, err
	}
	return authority{r.topology.Version, r.topology.Fleet.Fingerprint(), r.w.serversOf(r.topology.Fleet)}, nil
}

func (r *router) route(name fencing.Resource) (engine.Mode, error) {
	return r.topology.Route(&engine.Request{Resources: []resource{name}})
}

func (r *router) start() {
	r.topology, r.asking = engine.Topology{}, false
	r.raft.start()
	r.follow()
}

// follow asks some member for its topology now and then.
func (r *router) follow() {
	r.look()
	r.w.timer(r.process, 200*time.Millisecond+r.w.random(time.Second), r.follow)
}

// look asks once.
func (r *router) look() {
	if r.asking || r.w.now < r.stale {
		return
	}
	r.asking = true
	at, life := r.w.cluster.slots[r.w.rng.IntN(len(r.w.cluster.slots))], r.life
	r.w.send(r.process, at.process, false, func() {
		t := at.replica.machine.Topology()
		r.w.send(at.process, r.process, false, func() {
			if life == r.life && t.Version > r.topology.Version && r.w.now >= r.stale {
				r.topology = t
			}
		})
	})
	r.w.timer(r.process, 100*time.Millisecond, func() { r.asking = false })
}

func (r *router) ask(a *attempt) {
	if a.over {
		return
	}
	switch mode, err := r.route(a.name); {
	case err != nil || r.topology.Version == 0: // it moves, or the efficiency mode is not ready
		r.look()
		r.w.timer(r.process, 50*time.Millisecond+r.w.random(200*time.Millisecond), func() { r.ask(a) })
	case mode == engine.Efficiency:
		r.redis.ask(a)
	default:
		r.raft.ask(a)
	}
}

func (r *router) release(a *attempt) {
	if _, ok := a.session.(*round); ok {
		r.redis.release(a)
		return
	}
	r.raft.release(a)
}

func (r *router) sent(a *attempt) engine.Instant {
	if _, ok := a.session.(*round); ok {
		return r.redis.sent(a)
	}
	return r.raft.sent(a)
}
