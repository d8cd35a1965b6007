package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// router is a client of a service with both modes. It follows the topology of any member,
// possibly an old one, and engine.Topology.Route selects the mode.
type router struct {
	*client
	raft     *raftClient
	redis    *redisClient
	topology engine.Topology
	stale    time.Duration // it receives no newer topology until then
	loading  bool
}

var _ service = (*router)(nil)

func newRouter(c *client) *router {
	r := &router{client: c, raft: &raftClient{client: c}}
	r.redis = &redisClient{client: c, outdated: r.load, authorize: r.authorize}
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
	return authority{r.topology.Version, r.topology.Fleet.Fingerprint(), r.w.serversOf(r.topology.Fleet), r.topology.Lives}, nil
}

func (r *router) route(name fencing.Resource) (engine.Mode, error) {
	return r.topology.Route(&engine.Request{Resources: []resource{name}})
}

func (r *router) start() {
	r.topology, r.loading = engine.Topology{}, false
	r.raft.start()
	r.follow()
}

// follow loads the topology periodically.
func (r *router) follow() {
	r.load()
	r.w.timer(r.process, 200*time.Millisecond+r.w.random(time.Second), r.follow)
}

// load loads the topology from a random member.
func (r *router) load() {
	if r.loading || r.w.now < r.stale {
		return
	}
	r.loading = true
	at, life := r.w.cluster.slots[r.w.rng.IntN(len(r.w.cluster.slots))], r.life
	r.w.send(r.process, at.process, false, func() {
		t := at.replica.machine.Topology()
		r.w.send(at.process, r.process, false, func() {
			if life == r.life && t.Version > r.topology.Version && r.w.now >= r.stale {
				r.topology = t
			}
		})
	})
	r.w.timer(r.process, 100*time.Millisecond, func() { r.loading = false })
}

func (r *router) acquire(a *attempt) {
	if a.over {
		return
	}
	switch mode, err := r.route(a.name); {
	case err != nil || r.topology.Version == 0: // it migrates, or the efficiency mode is not ready
		r.load()
		r.w.timer(r.process, 50*time.Millisecond+r.w.random(200*time.Millisecond), func() { r.acquire(a) })
	case mode == engine.Efficiency:
		r.redis.acquire(a)
	default:
		r.raft.acquire(a)
	}
}

func (r *router) release(a *attempt) {
	if _, ok := a.state.(*round); ok {
		r.redis.release(a)
		return
	}
	r.raft.release(a)
}

func (r *router) sent(a *attempt) engine.Instant {
	if _, ok := a.state.(*round); ok {
		return r.redis.sent(a)
	}
	return r.raft.sent(a)
}
