package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// NodeStatus is the state of one node, as this process sees it.
type NodeStatus struct {
	Addr string
	// Err is why the node did not report. The other fields are then zero.
	Err error
	// Report has the state that the node stores about itself.
	Report recovery.Report
	// Joining is the join nonce of an empty node.
	Joining string
	// Quarantine is the minimum time until that node may vote.
	Quarantine time.Duration
	// Joined is the time since its join nonce was put or repeated.
	Joined time.Duration
	// Skew is the time by which the node's clock is ahead of the local one, beyond the
	// round trip.
	Skew time.Duration
}

// each calls f for every node in parallel and returns when all calls have returned.
func (b *Backend) each(f func(i int, n *redisconn.Conn)) {
	var wg sync.WaitGroup
	for i, n := range b.nodes {
		wg.Go(func() { f(i, n) })
	}
	wg.Wait()
}

// sendAll sends a request to every node.
func (b *Backend) sendAll(r *redisconn.Request) {
	for _, n := range b.nodes {
		n.Send(r)
	}
}

// allNodes returns the set of all nodes.
func (b *Backend) allNodes() uint64 { return 1<<len(b.nodes) - 1 }

// sendTo sends a request to some nodes.
func (b *Backend) sendTo(nodes uint64, r *redisconn.Request) {
	for ; nodes != 0; nodes &= nodes - 1 {
		b.nodes[bits.TrailingZeros64(nodes)].Send(r)
	}
}

// NodeStatuses asks every node for its status, in the order of Config.Nodes.
func (b *Backend) NodeStatuses(ctx context.Context) []NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, 4*b.config.NodeTimeout)
	defer cancel()
	all := make([]NodeStatus, len(b.nodes))
	b.each(func(i int, n *redisconn.Conn) { all[i] = b.nodeStatus(ctx, n) })
	return all
}

func (b *Backend) nodeStatus(ctx context.Context, n *redisconn.Conn) NodeStatus {
	before := wallClock()
	r, err := scripts.Report(ctx, n, b.namespace)
	after := wallClock()
	if err != nil {
		return NodeStatus{Addr: n.Addr(), Err: err}
	}
	s := NodeStatus{Addr: n.Addr(), Report: r.Report, Joining: r.Join}
	if r.Join != "" {
		s.Joined = r.Joined
		s.Quarantine = recovery.QuarantineLeft(b.config.MaxTTL, r.Waited, r.Joined, b.config.joinGap())
	}
	switch {
	case r.Clock.Before(before.Add(-time.Millisecond)):
		s.Skew = r.Clock.Sub(before)
	case r.Clock.After(after):
		s.Skew = r.Clock.Sub(after)
	}
	return s
}

// reports returns the reports in statuses.
func reports(statuses []NodeStatus) []recovery.Report {
	all := make([]recovery.Report, len(statuses))
	for i, s := range statuses {
		all[i] = s.Report
	}
	return all
}

// The calls of a service name the run of the server that they are for, as it reported it. A
// node whose address leads to another one fails.

// Join puts a join nonce on a node, and replaces any other. Only the range that is assigned
// to this nonce can initialise the node, after a quarantine that starts now.
func (b *Backend) Join(ctx context.Context, node int, server, join string, version uint64) error {
	return b.join(ctx, node, server, scripts.Join{Nonce: join, Version: version})
}

// Rejoin repeats the join nonce of a node. Its quarantine starts again if it was not
// repeated for some seconds.
func (b *Backend) Rejoin(ctx context.Context, node int, server, join string, version uint64) error {
	return b.join(ctx, node, server, scripts.Join{Nonce: join, Version: version, Gap: b.config.joinGap()})
}

func (b *Backend) join(ctx context.Context, node int, server string, join scripts.Join) error {
	join.Fleet, join.Again = b.fingerprint, true
	_, err := join.Put(ctx, b.at(node, server))
	return err
}

// Initialise makes a node a voter. wait is above 0 while the node is in quarantine.
func (b *Backend) Initialise(ctx context.Context, node int, server string, r recovery.Range) (wait time.Duration, err error) {
	return scripts.Init(ctx, b.at(node, server), b.fingerprint, r)
}

// Advance raises a node to a goal. Nothing is ever lowered.
func (b *Backend) Advance(ctx context.Context, node int, server string, goal recovery.Goal) error {
	return scripts.Advance(ctx, b.at(node, server), goal)
}

func (b *Backend) at(node int, server string) scripts.Node { return b.nodes[node].At(server) }

// Sweep removes the data of former lives of the servers, and the records of locks that
// were not used for Config.IdleCounters.
func (b *Backend) Sweep(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	b.each(func(i int, n *redisconn.Conn) { errs[i] = scripts.Sweep(ctx, n, b.namespace, b.config.IdleCounters) })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// quorumError explains why fewer than a quorum of the nodes succeeded. errs has an entry
// for each node.
func (b *Backend) quorumError(errs []error) error {
	succeeded := 0
	var reasons []error
	for i, err := range errs {
		if err == nil {
			succeeded++
			continue
		}
		if why := b.keeper.log.waiting(i); errors.Is(err, scripts.ErrEmpty) && errors.Is(why, errNotSaved) {
			err = fmt.Errorf("%w: %w", err, why)
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", b.nodes[i].Addr(), err))
	}
	err := fmt.Errorf("%w: %d of %d Redis nodes agreed, %d are needed; see 'leased redis status': %w",
		engine.ErrUnavailable, succeeded, len(b.nodes), b.quorum, errors.Join(reasons...))
	if b.config.Topology == nil && b.stateIsLost() {
		return fmt.Errorf("%w: %w", ErrNoState, err)
	}
	return err
}

// versionError is the refusal of nodes that have seen a newer version.
func (b *Backend) versionError() error {
	if b.config.Topology != nil {
		return engine.ErrVersion
	}
	return fmt.Errorf("%w: the Redis nodes of namespace %q belong to a service, which assigns their tokens; use the service, or another namespace",
		engine.ErrUnavailable, b.config.Namespace)
}
