package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// joinGap is the time without a join after which a client takes the recovery of a node
// over from another client, and its quarantine starts again.
const joinGap = 6 * time.Second

// standaloneClient is a client of a fleet without a service. Like redlockadapter, it also
// recovers nodes that lost their state; recovery.Standalone decides.
type standaloneClient struct {
	*redisClient
	core       *recovery.Standalone
	servers    []*redisServer
	saved      map[string]fencing.Token // floors on disk, by server life
	count      int                      // of join nonces
	recovering bool
	begun      bool // it has seen all nodes
}

func newStandaloneClient(c *client, servers []*redisServer) *standaloneClient {
	s := &standaloneClient{servers: servers}
	s.redisClient = &redisClient{client: c, authorize: func(fencing.Resource) (authority, error) {
		if !c.w.connected(c.process, s.fleet(), servers) {
			return authority{}, engine.ErrUnavailable
		}
		return authority{version: recovery.StandaloneVersion, fleet: s.fleet(), servers: servers}, nil
	}}
	return s
}

func (c *standaloneClient) fleet() string {
	f := c.w.fleetOf(c.servers...)
	f.MaxTTL = c.policy.TTL
	return recovery.StandaloneFleet(f)
}

func (c *standaloneClient) newCore() *recovery.Standalone {
	return &recovery.Standalone{Fleet: c.fleet(), Quarantine: c.policy.TTL, MaxTTL: c.policy.TTL}
}

func (c *standaloneClient) start() {
	c.redisClient.start()
	c.core = c.newCore()
	c.saved, c.recovering, c.begun = map[string]fencing.Token{}, false, false
	c.patrol()
}

// operateStandalone is the operator of a fleet without a service. While fewer than a quorum of the nodes can report
// their tokens, it provides a floor every 20 s, each time from another client.
func (w *World) operateStandalone(waited time.Duration) {
	var reports []recovery.Report
	for _, s := range w.redises {
		reports = append(reports, s.report())
	}
	lost := !slices.ContainsFunc(w.clients, func(c *client) bool {
		return !recovery.StateIsLost(c.engines[engine.AnyMode].(*standaloneClient).fleet(), reports)
	})
	waited += operatorPause
	again := lost && waited > 20*time.Second
	if again || !lost {
		waited = 0
	}
	for _, c := range w.clients {
		s := c.engines[engine.AnyMode].(*standaloneClient)
		switch {
		case s.core.Provided != nil && (again || !lost):
			s.core.Provided = nil
		case again && !c.down && !c.paused:
			floor := slices.Max(slices.Collect(maps.Values(w.granted))) + 1<<20 // attempts under way may be granted meanwhile
			for _, r := range w.redises {
				floor = max(floor, r.top())
			}
			s.core = s.newCore() // of another process
			s.core.Provided, again = &floor, false
		}
	}
	w.after(operatorPause, func() { w.operateStandalone(waited) })
}

// patrol recovers nodes and sweeps idle records periodically.
func (c *standaloneClient) patrol() {
	c.w.timer(c.process, 500*time.Millisecond+c.w.random(2*time.Second), c.patrol)
	for _, s := range c.servers {
		send(c.w, c.process, s, true, func(n *redisnode.Node, now int64) bool {
			n.Sweep(now, 3*c.policy.TTL.Milliseconds()) // a day in production
			return true
		}, nil)
	}
	if c.recovering || !c.w.connected(c.process, c.fleet(), c.servers) {
		return
	}
	c.recovering = true
	c.recoverNodes()
}

// recoverNodes takes steps of the recovery of nodes that lost their state, as many as are possible now.
func (c *standaloneClient) recoverNodes() {
	c.w.queryReports(c.process, c.servers, func(all []nodeReport) {
		nodes := make([]recovery.Node, len(all))
		for i, s := range all {
			nodes[i] = s.node(c.policy.TTL)
			nodes[i].SavedFloor, nodes[i].Saved = c.saved[s.Server]
		}
		if !c.begun {
			c.begin(nodes)
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

// begin is the first look at the nodes, like that of redlockadapter.New.
func (c *standaloneClient) begin(nodes []recovery.Node) {
	c.begun = true
	var reports []recovery.Report
	for _, n := range nodes {
		reports = append(reports, n.Report)
	}
	c.core.Begin(reports)
}

// do carries out an action. The call has no effect on another run of the server than the one that reported.
func (c *standaloneClient) do(a recovery.Action, done func(bool)) {
	s := c.servers[a.Node]
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
			join := redisnode.Join{Nonce: a.Join, Version: recovery.StandaloneVersion, Fleet: c.fleet(), Keep: gap, Gap: gap}
			if c.core.Provided != nil { // an operator decides, not another process
				join.Keep = 0
			}
			reason, _ := n.Join(now, join)
			return reason
		case recovery.Reserve:
			version := uint64(0)
			if a.Vouched {
				version = recovery.StandaloneVersion
			}
			return n.Reserve(c.fleet(), a.Floor, version)
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
