package sim

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

const (
	standaloneVersion = recovery.StandaloneVersion
	// joinGap is the time without a join after which a client takes the recovery of a node
	// over from another client, and its quarantine starts again.
	joinGap = 6 * time.Second
)

// standaloneClient is a client of a fleet without a service. Like redlockadapter, it also
// recovers nodes that lost their state; recovery.Standalone decides.
type standaloneClient struct {
	*redisClient
	core       *recovery.Standalone
	saved      map[string]fencing.Token // floors on disk, by server life
	count      int                      // of join nonces
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
		s.node.Init(now, redisnode.Range{Join: "init", Version: standaloneVersion, Fleet: fleet, Member: s.address,
			Ceiling: fencing.MaxToken})
	}
}

func (c *standaloneClient) start() {
	c.redisClient.start()
	c.core = &recovery.Standalone{Fleet: c.fleet(), Quarantine: c.policy.TTL, MaxTTL: c.policy.TTL}
	c.saved, c.recovering = map[string]fencing.Token{}, false
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
	c.recoverNodes()
}

// recoverNodes takes steps of the recovery of nodes that lost their state, as many as are possible now.
func (c *standaloneClient) recoverNodes() {
	c.w.queryReports(c.process, c.w.redises, func(all []nodeReport) {
		nodes := make([]recovery.Node, len(all))
		for i, s := range all {
			nodes[i] = s.node(c.policy.TTL)
			nodes[i].SavedFloor, nodes[i].Saved = c.saved[s.Server]
		}
		actions, _, progressed := c.core.Step(nodes, func() string {
			c.count++
			return fmt.Sprintf("%s.%d.%d", c.name, c.client.life, c.count)
		})
		missing := len(actions)
		if missing == 0 {
			c.recovering = false
		}
		for _, a := range actions {
			c.do(a, func(done bool) {
				progressed = progressed || done && a.Kind != recovery.Join
				if missing--; missing > 0 {
					return
				}
				if c.recovering = progressed; progressed {
					c.recoverNodes()
				}
			})
		}
	})
}

// do carries out an action. The call has no effect on another run of the server than the one that reported.
func (c *standaloneClient) do(a recovery.Action, done func(bool)) {
	s := c.w.redises[a.Node]
	if a.Kind == recovery.Reserve { // an older save does not have it
		delete(c.saved, a.Server)
	}
	call(c.w, c.process, s, true, func(n *redisnode.Node, now int64) redisnode.Reason {
		if n.Life() != a.Server {
			return redisnode.Empty
		}
		gap, r := joinGap.Milliseconds(), a.Range
		switch a.Kind {
		case recovery.Join:
			reason, _ := n.Join(now, redisnode.Join{Nonce: a.Join, Version: standaloneVersion, Fleet: c.fleet(),
				Keep: gap, Gap: gap})
			return reason
		case recovery.Reserve:
			return n.Reserve(c.fleet(), a.Floor, 0)
		case recovery.Save:
			s.disk = n.Clone()
			return redisnode.Accepted
		}
		return n.Init(now, redisnode.Range{Join: r.Join, Version: r.Version, Fleet: c.fleet(), Member: s.address,
			Floor: r.Floor, Ceiling: r.Ceiling, Quarantine: r.Quarantine.Milliseconds()}).Reason
	}, func(reason redisnode.Reason, ok bool) {
		if ok = ok && reason == redisnode.Accepted; ok && a.Kind == recovery.Save {
			c.saved[a.Server] = a.Floor
		}
		done(ok)
	})
}
