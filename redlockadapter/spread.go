package redlockadapter

import (
	"math/bits"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// An attempt asks a quorum of the nodes first, and the others when
//
//   - the first ones cannot decide it: one has failed or refused, or their votes differ;
//   - they do not answer within a third of Config.NodeTimeout;
//   - the lease is held for longer than spreadAfter.
//
// So a lease is on a quorum when it is granted, and soon on all nodes, with its granted token:
// any process can find it there. From then on it ends early only if a majority of the nodes lose
// it. A lease that is released sooner costs nothing
// on the other nodes, and they need no release. No token depends on this: for the protocol, a
// node that was not asked is one whose request is late.
const (
	spreadAfter = 20 * time.Millisecond
	// minSpreadTTL is the TTL from which attempts ask a quorum first.
	minSpreadTTL = 10 * spreadAfter
	// A node is asked last if its round trips take longer than slowFactor times those of
	// the fastest node plus slowMargin.
	slowFactor = 4
	slowMargin = 5 * time.Millisecond
)

// firstNodes returns the nodes that an attempt asks first. They depend on the lock, so that
// all nodes have the same load, and processes that contend for a lock ask the same nodes.
// Slow nodes and those without a connection to a server that may be asked come last.
func (b *Backend) firstNodes(lock fencing.Resource, ttl time.Duration, servers []string) uint64 {
	n := len(b.nodes)
	if ttl < minSpreadTTL {
		return b.allNodes()
	}
	fastest := ttl
	for i, node := range b.nodes {
		if connected(node, i, servers) {
			fastest = min(fastest, node.RoundTrip())
		}
	}
	hash := uint32(2166136261) // FNV-1a
	for i := range len(lock) {
		hash = (hash ^ uint32(lock[i])) * 16777619
	}
	var first uint64
	for i, asked := 0, 0; i < n; i++ {
		node := b.order[(int(hash%uint32(n))+i)%n]
		if !connected(b.nodes[node], node, servers) || b.nodes[node].RoundTrip() > slowFactor*fastest+slowMargin {
			continue
		}
		first |= 1 << node
		if asked++; asked == b.quorum {
			return first
		}
	}
	return b.allNodes()
}

// connected reports whether a node has a connection to a server that may be asked.
func connected(n *redisconn.Conn, i int, servers []string) bool {
	server := n.Server()
	return server != "" && (servers == nil || servers[i] == server)
}

// takeRest returns the nodes that were not asked, and counts them as asked. The caller
// holds mu, and sends them the request after it has unlocked mu.
func (a *attempt) takeRest() uint64 {
	rest := a.unasked
	if a.ended {
		return 0
	}
	a.unasked = 0
	a.unanswered |= rest
	a.pending += bits.OnesCount64(rest)
	return rest
}

// askRest asks the nodes that were not asked yet, unless the attempt has ended.
func (a *attempt) askRest() {
	a.mu.Lock()
	rest := a.takeRest()
	a.mu.Unlock()
	a.backend.sendTo(rest, a.request)
}

// takeUninformed returns the nodes of a granted attempt that do not know its token and were not told yet,
// counts them as asked, and returns the request that tells them. The caller holds mu, and sends it
// after it has unlocked mu.
func (a *attempt) takeUninformed() (uint64, *redisconn.Request) {
	rest := a.takeRest()
	if a.ended {
		return 0, nil
	}
	for _, node := range a.votes.Uninformed() {
		if bit := uint64(1) << node; (a.unanswered|a.informed)&bit == 0 {
			rest |= bit
			a.unanswered |= bit
			a.pending++
		}
	}
	if rest == 0 {
		return 0, nil
	}
	a.informed |= rest
	return rest, a.acquireRequest(a.votes.Token())
}

// spreadGrant sends a granted attempt to the nodes that do not have it, and its token to those that
// accepted another one, unless the attempt has ended.
func (a *attempt) spreadGrant() {
	a.mu.Lock()
	a.spread = true
	rest, request := a.takeUninformed()
	a.mu.Unlock()
	a.backend.sendTo(rest, request)
}

// spread asks the remaining nodes for leases that are held for longer than spreadAfter.
// One timer serves all of them.
type spread struct {
	clock engine.Clock

	mu     sync.Mutex
	queue  []spreading // in the order of their grants
	timer  *time.Timer // nil while the queue is empty
	closed bool
}

// spreading is a grant in the queue of spread.
type spreading struct {
	attempt *attempt
	at      engine.Instant // when it is due
}

// add asks the remaining nodes after spreadAfter, unless the lease has ended by then.
func (s *spread) add(a *attempt, now engine.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.queue = append(s.queue, spreading{a, now.Add(spreadAfter)})
	if s.timer == nil {
		s.timer = time.AfterFunc(spreadAfter, s.run)
	}
}

// run asks the remaining nodes for the leases that are due.
func (s *spread) run() {
	now := s.clock.Now()
	s.mu.Lock()
	due := 0
	for due < len(s.queue) && now.Until(s.queue[due].at) <= 0 {
		due++
	}
	ready := append([]spreading(nil), s.queue[:due]...)
	rest := copy(s.queue, s.queue[due:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
	switch {
	case s.closed:
	case rest == 0:
		s.timer = nil
	default:
		s.timer.Reset(now.Until(s.queue[0].at))
	}
	s.mu.Unlock()
	for _, one := range ready {
		if now.Since(one.at) < one.attempt.TTL/2 { // otherwise the process was paused, and the lease may be over
			one.attempt.spreadGrant()
		}
	}
}

// close stops the timer.
func (s *spread) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
