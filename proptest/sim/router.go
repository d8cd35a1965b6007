package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// topologyFollower follows the topology of any member, possibly an old one, for a client of a
// service with both modes.
type topologyFollower struct {
	*client
	stale   time.Duration // it receives no newer topology until then
	loading bool
}

// authorize reads mode, version and fleet of a lock from one topology.
func (r *topologyFollower) authorize(name fencing.Resource) (authority, error) {
	topology := r.core.Topology()
	mode, err := topology.Route(&engine.Request{Resources: []fencing.Resource{name}})
	if err == nil && mode != engine.Efficiency {
		err = fmt.Errorf("%w: %s", engine.ErrUnavailable, name)
	}
	if err != nil {
		return authority{}, err
	}
	under := authority{topology.Version, topology.Fleet.Fingerprint(), r.w.serversOf(topology.Fleet), topology.Lives}
	if !r.w.connected(r.process, under.fleet, under.servers) {
		err = engine.ErrUnavailable
	}
	return under, err
}

// start loads the topology periodically.
func (r *topologyFollower) start() {
	r.loading = false
	r.patrol()
}

func (r *topologyFollower) patrol() {
	r.load()
	r.w.timer(r.process, 200*time.Millisecond+r.w.random(time.Second), r.patrol)
}

// load loads the topology from a random member.
func (r *topologyFollower) load() {
	if r.loading || r.w.now < r.stale {
		return
	}
	r.loading = true
	at, life := r.w.cluster.slots[r.w.rng.IntN(len(r.w.cluster.slots))], r.life
	r.w.send(r.process, at.process, false, func() {
		t := at.replica.machine.Topology()
		r.w.send(at.process, r.process, false, func() {
			known := r.core.Topology()
			if life == r.life && t.Version > 0 && (known == nil || t.Version > known.Version) && r.w.now >= r.stale {
				r.followed(t)
			}
		})
	})
	r.w.timer(r.process, 100*time.Millisecond, func() { r.loading = false })
}
