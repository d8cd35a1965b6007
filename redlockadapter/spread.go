package redlockadapter

import (
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

// spreadGrant asks the remaining nodes for a lease that was due at an instant, unless the process was paused since, and
// the lease may be over.
func (a *attempt) spreadGrant(due engine.Instant) {
	b := a.backend
	if b.ctx.Err() == nil && b.clock.Now().Since(due) < a.TTL/2 {
		a.step((*quorum.Attempt).SpreadGrant)
	}
}
