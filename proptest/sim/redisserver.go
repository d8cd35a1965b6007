package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

type resource = fencing.Resource

// nodeTimeout bounds one exchange with a Redis server.
const nodeTimeout = 300 * time.Millisecond

// redisServer is a Redis server: package redisnode's model of a node, with a clock
// of its own. Every crash begins another life.
type redisServer struct {
	*process
	address string
	node    *redisnode.Node
	disk    *redisnode.Node // an older copy of the data; nil if there is none
	lives   int
}

func newRedisServer(w *World, number int) *redisServer {
	s := &redisServer{process: w.newProcess(fmt.Sprintf("redis %d", number)), address: fmt.Sprintf("redis-%d:6379", number)}
	s.node = redisnode.New(s.lifeName())
	s.save(w)
	return s
}

func (s *redisServer) lifeName() string { return fmt.Sprintf("%s life %d", s.name, s.lives) }

// millis is the server's clock.
func (s *redisServer) millis(w *World) int64 { return (time.Hour + s.clock.wall(w.now)).Milliseconds() }

// save writes a copy of the data to disk now and then.
func (s *redisServer) save(w *World) {
	w.after(2*time.Second+w.random(15*time.Second), func() {
		if !s.down {
			s.disk = s.node.Clone()
		}
		s.save(w)
	})
}

// report is what the server says of itself.
func (s *redisServer) report() recovery.Report {
	r, _, _ := s.node.Report(0)
	return r
}

// top is how far tokens had come, as far as the server can tell.
func (s *redisServer) top() (top fencing.Token) {
	r := s.report()
	for _, state := range []*recovery.State{r.Live, r.Former} {
		if state != nil {
			top = max(top, state.Max, state.Floor)
		}
	}
	return top
}

// keeps is what a crash leaves of the data.
type keeps uint8

const (
	keepsNothing keeps = iota
	keepsOld           // what was on disk at some earlier moment
	keepsAll
)

// crashRedis restarts a server after a while, with what it keeps of its data.
//
// Without a service, two losses are not covered by any promise, and do not happen
// here: fewer than a quorum of the nodes can report how far tokens had come, and
// data that lags by as much as a recovery jumps.
func (w *World) crashRedis(s *redisServer, d time.Duration, left keeps) bool {
	if s.down {
		return false
	}
	if w.plan.Setting == Standalone {
		known := 0
		for _, o := range w.redises {
			if r := o.report(); o != s && (r.Live != nil || r.Former != nil) {
				known++
			}
		}
		if left == keepsNothing && known < len(w.redises)/2+1 {
			return false
		}
		if old := (&redisServer{node: s.disk}); left == keepsOld && (s.disk == nil || old.top()+recovery.Jump/2 < s.top()) {
			left = keepsAll
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

// script sends a script to a server, and its answer back. A crash closes the
// connection: what was under way is lost. A copy may arrive again, unless once.
func send[R any](w *World, from *process, s *redisServer, once bool, do func(n *redisnode.Node, now int64) R, got func(R)) {
	mine, its := from.life, s.lives
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

// exchange is script with an end: got is called once, and not ok if no answer came
// in time.
func call[R any](w *World, from *process, s *redisServer, once bool, do func(n *redisnode.Node, now int64) R, got func(answer R, ok bool)) {
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

// nodeReport is the answer of a node to report.lua.
type nodeReport struct {
	recovery.Report
	join   string
	joined time.Duration // since the first join nonce
}

func reportOf(n *redisnode.Node, now int64) nodeReport {
	report, join, joined := n.Report(now)
	return nodeReport{report, join, time.Duration(joined) * time.Millisecond}
}

// survey asks servers for their nodeReport, and waits for all answers, each for a
// while. The zero nodeReport is no answer.
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

func reports(all []nodeReport) []recovery.Report {
	list := make([]recovery.Report, len(all))
	for i, s := range all {
		list[i] = s.Report
	}
	return list
}
