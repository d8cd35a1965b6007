package redlockadapter

import (
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Limits that decide when an attempt asks which nodes; see quorum.Attempt.
const (
	// spreadAfter is the time for which a lease is held before it is sent to all nodes.
	spreadAfter = 20 * time.Millisecond
	// minSpreadTTL is the TTL from which attempts ask a quorum first.
	minSpreadTTL = 10 * spreadAfter
	// A node is asked last if its round trips take longer than slowFactor times the round
	// trips of the fastest node, plus slowMargin.
	slowFactor = 4
	slowMargin = 5 * time.Millisecond
)

// firstNodes returns the nodes that an attempt asks first. Slow nodes and those without a connection to a
// server that may be asked come last.
func (b *Backend) firstNodes(lock fencing.Resource, ttl time.Duration, servers []string) quorum.Nodes {
	if ttl < minSpreadTTL {
		return quorum.All(len(b.nodes))
	}
	var usable quorum.Nodes
	fastest := ttl
	for i, node := range b.nodes {
		server := node.Server()
		if server != "" && (servers == nil || servers[i] == server) {
			usable |= 1 << i
			fastest = min(fastest, node.RoundTrip())
		}
	}
	for i, node := range b.nodes {
		if node.RoundTrip() > slowFactor*fastest+slowMargin {
			usable &^= 1 << i
		}
	}
	return quorum.First(lock, b.order, usable)
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
	ready := slices.Clone(s.queue[:due])
	s.queue = slices.Delete(s.queue, 0, due)
	switch {
	case s.closed:
	case len(s.queue) == 0:
		s.timer = nil
	default:
		s.timer.Reset(now.Until(s.queue[0].at))
	}
	s.mu.Unlock()
	for _, one := range ready {
		if now.Since(one.at) < one.attempt.TTL/2 { // otherwise the process was paused, and the lease may be over
			one.attempt.step((*quorum.Attempt).SpreadGrant)
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
