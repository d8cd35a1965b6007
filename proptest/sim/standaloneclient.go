package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

const (
	// standaloneVersion is the version of a fleet without a service.
	standaloneVersion = 1
	// joinGap is the time without a join after which a client takes the recovery of a node
	// over from another client, and its quarantine starts again.
	joinGap = 6 * time.Second
)

// standaloneClient is a client of a fleet without a service. Like redlockadapter, it also
// recovers nodes that lost their state.
type standaloneClient struct {
	*redisClient
	joins      map[string]string // by server life: the join nonce that this client put there
	count      int
	recovering bool
}

func newStandaloneClient(c *client) *standaloneClient {
	s := &standaloneClient{}
	s.redisClient = &redisClient{client: c, authorize: func(fencing.Resource) (authority, error) {
		return authority{version: standaloneVersion, fleet: s.fleet(), servers: c.w.redises}, nil
	}}
	return s
}

func (c *standaloneClient) fleet() string { return c.w.fleetOf(c.w.redises...).Fingerprint() }

// initStandalone initializes new servers, like redlockadapter.Init.
func (w *World) initStandalone() {
	fleet := w.fleetOf(w.redises...).Fingerprint()
	for _, s := range w.redises {
		now := s.millis(w)
		s.node.Join(now, redisnode.Join{Nonce: "init", Version: standaloneVersion, Fleet: fleet})
		s.node.Init(now, redisnode.Range{Join: "init", Version: standaloneVersion, Fleet: fleet, Member: s.address, Ceiling: fencing.MaxToken})
	}
}

func (c *standaloneClient) start() {
	c.redisClient.start()
	c.joins, c.recovering = map[string]string{}, false
	c.patrol()
}

// patrol recovers nodes and sweeps idle records periodically.
func (c *standaloneClient) patrol() {
	c.w.timer(c.process, 500*time.Millisecond+c.w.random(2*time.Second), c.patrol)
	for _, s := range c.w.redises {
		send(c.w, c.process, s, true, func(n *redisnode.Node, now int64) bool {
			n.Sweep(now, 3*c.policy.TTL.Milliseconds()) // a day in production
			return true
		}, nil)
	}
	if c.recovering {
		return
	}
	c.recovering = true
	c.w.queryReports(c.process, c.w.redises, func(all []nodeReport) { c.recoverFrom(all, 0) })
}

// recoverFrom recovers the nodes that lost their state, one by one.
func (c *standaloneClient) recoverFrom(all []nodeReport, from int) {
	for i := from; i < len(all); i++ {
		if all[i].Reached && all[i].Live == nil {
			c.recover(c.w.redises[i], all[i], func() { c.recoverFrom(all, i+1) })
			return
		}
	}
	c.recovering = false
}

// recover assigns an empty node a new range, above the reports that a quorum gives after
// the quarantine of the node.
func (c *standaloneClient) recover(s *redisServer, present nodeReport, done func()) {
	life := s.lifeName()
	join := c.joins[life]
	if join == "" || join != present.join {
		c.count++
		join = fmt.Sprintf("%s.%d.%d", c.name, c.client.life, c.count)
	}
	type reply struct {
		reason redisnode.Reason
		waited int64
	}
	call(c.w, c.process, s, true, func(n *redisnode.Node, now int64) reply {
		reason, waited := n.Join(now, redisnode.Join{Nonce: join, Version: standaloneVersion, Fleet: c.fleet(), Keep: joinGap.Milliseconds(),
			Gap: joinGap.Milliseconds()})
		return reply{reason, waited}
	}, func(got reply, ok bool) {
		if !ok || got.reason != redisnode.Accepted {
			done()
			return
		}
		c.joins[life] = join
		if got.waited < c.policy.TTL.Milliseconds() {
			done()
			return
		}
		c.initialise(s, join, done)
	})
}

func (c *standaloneClient) initialise(s *redisServer, join string, done func()) {
	c.w.queryReports(c.process, c.w.redises, func(all []nodeReport) {
		floor, ok := recovery.StandaloneFloor(reports(all))
		if !ok {
			done()
			return
		}
		c.reserve(floor, 0, 0, func(reserved bool) {
			if !reserved {
				done()
				return
			}
			c.makeVoter(s, join, floor, done)
		})
	})
}

// reserve stores the floor of a recovering node on a quorum.
func (c *standaloneClient) reserve(floor fencing.Token, from, agreed int, then func(reserved bool)) {
	if from == len(c.w.redises) {
		then(agreed > len(c.w.redises)/2)
		return
	}
	call(c.w, c.process, c.w.redises[from], true, func(n *redisnode.Node, _ int64) redisnode.Reason {
		return n.Reserve(c.fleet(), floor, 0)
	}, func(reason redisnode.Reason, ok bool) {
		if ok && reason == redisnode.Accepted {
			agreed++
		}
		c.reserve(floor, from+1, agreed, then)
	})
}

// makeVoter initializes a node.
func (c *standaloneClient) makeVoter(s *redisServer, join string, floor fencing.Token, done func()) {
	call(c.w, c.process, s, true, func(n *redisnode.Node, now int64) redisnode.Reply {
		return n.Init(now, redisnode.Range{Join: join, Version: standaloneVersion, Fleet: c.fleet(), Member: s.address, Floor: floor,
			Ceiling: fencing.MaxToken, Quarantine: c.policy.TTL.Milliseconds()})
	}, func(redisnode.Reply, bool) { done() })
}
