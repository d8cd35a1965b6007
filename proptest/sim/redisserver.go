package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

const (
	// nodeTimeout bounds one call to a Redis server.
	nodeTimeout = 300 * time.Millisecond
	// connectInterval is the time between two tries to connect to a fleet.
	connectInterval = 500 * time.Millisecond
)

// redisServer is a Redis server: the model of package redisnode with a clock of its own.
// Every crash begins a new life.
type redisServer struct {
	*process
	address string
	node    *redisnode.Node
	disk    *redisnode.Node // an older copy of the data; nil if there is none
	lives   int
	refused uint64 // the processes, by number, that take it for a server that must not be a node
	wrong   uint64 // those that will, or still do, see misconfigure
	replica bool
}

func newRedisServer(w *World, number int) *redisServer {
	s := &redisServer{process: w.newProcess(fmt.Sprintf("redis %d", number)), address: fmt.Sprintf("redis-%d:6379",
		number)}
	s.node = redisnode.New(s.lifeName())
	s.save(w)
	return s
}

func (s *redisServer) lifeName() string { return fmt.Sprintf("%s life %d", s.name, s.lives) }

// millis reads the server's clock.
func (s *redisServer) millis(w *World) int64 { return (time.Hour + s.clock.wall(w.now)).Milliseconds() }

// save copies the data to disk periodically.
func (s *redisServer) save(w *World) {
	w.after(2*time.Second+w.random(15*time.Second), func() {
		if !s.down {
			s.disk = s.node.Clone()
		}
		s.save(w)
	})
}

// report returns the server's report.
func (s *redisServer) report() recovery.Report {
	r, _, _, _ := s.node.Report(0)
	return r
}

// top returns the largest token in the server's report.
func (s *redisServer) top() (top fencing.Token) {
	r := s.report()
	for _, state := range []*recovery.State{r.Live, r.Former} {
		if state != nil {
			top = max(top, state.Max, state.Floor)
		}
	}
	return top
}

// keeps is the data that survives a crash.
type keeps uint8

const (
	keepsNothing keeps = iota
	keepsOld           // an older copy on disk
	keepsAll
)

// crashRedis restarts a server after a while, with some of its data.
//
// A standalone fleet does not survive two kinds of losses, which are not simulated: fewer
// than a quorum of nodes that can report, and data that lags by the jump of a recovery.
func (w *World) crashRedis(s *redisServer, d time.Duration, left keeps) bool {
	if s.down {
		return false
	}
	if w.plan.Setting == Standalone || w.plan.Outsider {
		known, needed := 0, 1
		if w.plan.Setting == Service {
			needed = quorum.Size(len(w.redises[:3]))
		}
		for _, o := range w.redises {
			if o != s && o.remembers() {
				known++
			}
		}
		old := &redisServer{node: s.disk}
		if left == keepsOld && (s.disk == nil || old.top()+recovery.Jump/2 < s.top()) {
			left = keepsAll
		}
		// The disk may be older than the first vote.
		forgets := left == keepsNothing || left == keepsOld && !old.remembers()
		// Nodes that have all lost everything look like new ones, and nobody gives a floor to a new service.
		if forgets && known < needed && (w.cluster == nil || !w.cluster.log.adopted) {
			return false
		}
	}
	w.crash(s.process)
	s.down = true
	s.lives++
	switch {
	case left == keepsNothing:
		s.node, s.disk = redisnode.New(s.lifeName()), nil
	case left == keepsOld && s.disk != nil:
		s.node = s.disk.Clone()
		s.node.Restart(s.lifeName())
	default:
		s.disk = s.node.Clone()
		s.node.Restart(s.lifeName())
	}
	w.after(d, func() { s.down = false })
	return true
}

// misconfigure makes a server one that must not be a node: for all processes, as a replica or one that may evict keys,
// or for some, whose clocks differ from its own. Each process notices within a second, also when it is put right.
func (w *World) misconfigure(s *redisServer, f Fault, d time.Duration) bool {
	if s.wrong != 0 || s.down {
		return false
	}
	s.wrong, s.replica = uint64(f.Size>>2), f.Size%4 == 1
	if f.Size%4 > 0 {
		s.wrong = math.MaxUint64
	}
	w.noticed(s)
	w.after(max(d, time.Second), func() {
		if !w.healed {
			w.putRight(s)
		}
	})
	return s.wrong != 0
}

// putRight ends a misconfiguration. A replica that becomes a master begins a new life.
func (w *World) putRight(s *redisServer) {
	s.wrong = 0
	w.noticed(s)
	if s.replica {
		s.replica = false
		w.crashRedis(s, 10*time.Millisecond, keeps(w.rng.IntN(3)))
	}
}

func (w *World) noticed(s *redisServer) {
	for _, p := range w.processes {
		bit := uint64(1) << p.number
		w.after(w.random(time.Second), func() { s.refused = s.refused&^bit | s.wrong&bit })
	}
}

// connected reports whether a process can use a fleet. One that is new to it connects first, like redlockadapter.New.
func (w *World) connected(p *process, fleet string, servers []*redisServer) bool {
	if p.fleet != fleet {
		p.fleet, p.usable = fleet, false
		w.connect(p, fleet, servers)
	}
	return p.usable
}

func (w *World) connect(p *process, fleet string, servers []*redisServer) {
	w.queryReports(p, servers, func(all []nodeReport) {
		errs := make([]error, len(all))
		for i, r := range all {
			if !r.Reached {
				errs[i] = engine.ErrUnavailable
			}
		}
		if p.fleet != fleet {
			return
		}
		if p.usable = quorum.Usable(errs); !p.usable {
			w.timer(p, connectInterval, func() { w.connect(p, fleet, servers) })
		}
	})
}

// remembers reports whether the server can say which tokens it has accepted, in this life or the former one.
func (s *redisServer) remembers() bool {
	r := s.report()
	return r.Live != nil || r.Former != nil
}

// send executes a script on a server and delivers the answer. A crash closes the
// connection and loses messages in flight. The call may arrive twice, unless once is set.
func send[R any](w *World, from *process, s *redisServer, once bool, do func(n *redisnode.Node, now int64) R,
	got func(R)) {
	mine, its := from.life, s.lives
	if s.refused>>from.number&1 == 1 {
		return
	}
	w.send(from, s.process, once, func() {
		if s.lives != its {
			return
		}
		answer := do(s.node, s.millis(w))
		if got == nil {
			return
		}
		w.send(s.process, from, true, func() {
			if mine == from.life {
				got(answer)
			}
		})
	})
}

// call is send with a timeout: got is called once, with ok false after the timeout.
func call[R any](w *World, from *process, s *redisServer, once bool, do func(n *redisnode.Node, now int64) R,
	got func(answer R, ok bool)) {
	over := false
	send(w, from, s, once, do, func(answer R) {
		if !over {
			over = true
			got(answer, true)
		}
	})
	w.timer(from, nodeTimeout, func() {
		if !over {
			over = true
			var none R
			got(none, false)
		}
	})
}

// serversOf returns the servers of a fleet, in the order of its addresses.
func (w *World) serversOf(f engine.Fleet) []*redisServer {
	servers := make([]*redisServer, len(f.Addresses))
	for i, address := range f.Addresses {
		servers[i] = w.redises[slices.IndexFunc(w.redises, func(s *redisServer) bool { return s.address == address })]
	}
	return servers
}

// fleetOf returns the fleet of some servers.
func (w *World) fleetOf(servers ...*redisServer) engine.Fleet {
	f := engine.Fleet{Namespace: "sim", MaxTTL: w.plan.TTL}
	for _, s := range servers {
		f.Addresses = append(f.Addresses, s.address)
	}
	return f
}

// nodeReport is the reply of report.lua.
type nodeReport struct {
	recovery.Report
	join   string
	waited time.Duration // since its quarantine began
	joined time.Duration // since its last join
}

// node returns the state of the node as input for a recovery.
func (r nodeReport) node(quarantine time.Duration) recovery.Node {
	n := recovery.Node{Report: r.Report, Joining: r.join}
	if r.join != "" {
		n.Quarantine, n.Joined = recovery.QuarantineLeft(quarantine, r.waited, r.joined, joinGap), r.joined
	}
	return n
}

func reportOf(n *redisnode.Node, now int64) nodeReport {
	report, join, waited, joined := n.Report(now)
	return nodeReport{report, join, time.Duration(waited) * time.Millisecond, time.Duration(joined) * time.Millisecond}
}

// queryReports collects the reports of servers. The zero nodeReport stands for a missing
// answer.
func (w *World) queryReports(from *process, servers []*redisServer, done func([]nodeReport)) {
	all, missing := make([]nodeReport, len(servers)), len(servers)
	if missing == 0 {
		w.timer(from, 0, func() { done(all) })
		return
	}
	for i, s := range servers {
		call(w, from, s, true, reportOf, func(answer nodeReport, _ bool) {
			all[i] = answer
			if missing--; missing == 0 {
				done(all)
			}
		})
	}
}
