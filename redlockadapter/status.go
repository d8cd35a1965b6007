package redlockadapter

import (
	"context"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// NodeStatus is how one node is doing.
type NodeStatus struct {
	Addr string
	// Err is why the node could not be asked; nothing else is known then.
	Err error
	// Report is the node's state.
	Report recovery.Report
	// Identity is the life of the server; it changes with every restart.
	Identity string
	// Joining is the join nonce on a node that has no state in this fleet.
	Joining string
	// Quarantine is the time until such a node may vote, at least.
	Quarantine time.Duration
	// Skew is how far its clock is ahead of ours, as far as can be told.
	Skew time.Duration

	waited time.Duration // since the first join
}

// NodeStatuses asks every node for its status, in the order of Config.Nodes.
func (b *Backend) NodeStatuses(ctx context.Context) []NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, 4*b.config.NodeTimeout)
	defer cancel()
	all := make([]NodeStatus, len(b.nodes))
	b.each(func(i int, n *node) {
		s, err := n.report(ctx, wallClock)
		s.Err = err
		if err == nil && s.Joining != "" {
			s.Quarantine = max(0, b.config.MaxTTL-s.waited)
		}
		all[i] = s
	})
	return all
}

// reports returns the reports in statuses.
func reports(statuses []NodeStatus) []recovery.Report {
	all := make([]recovery.Report, len(statuses))
	for i, s := range statuses {
		all[i] = s.Report
	}
	return all
}

// Join puts a join nonce on a node that has no state in this fleet, in place of
// any other. Only the range that is assigned to this nonce can initialise the
// node.
func (b *Backend) Join(ctx context.Context, node int, join string, version uint64) error {
	return b.join(ctx, node, join, version, 0)
}

// join is Join, but leaves a join nonce of another process that is younger than
// patience.
func (b *Backend) join(ctx context.Context, node int, join string, version uint64, patience time.Duration) error {
	n := b.nodes[node]
	got, err := n.call(ctx, joinScript, []string{nodeKey}, join, fmt.Sprint(version), b.fingerprint, millis(patience))
	if err != nil {
		return err
	}
	if word := got.word(0); word != "ok" {
		return fmt.Errorf("%s: join refused: %s", n.addr, word)
	}
	return nil
}

// Range is what makes a node a voter: tokens that it cannot have accepted before.
type Range struct {
	// Join is the nonce that the range was assigned to.
	Join    string
	Version uint64
	// The node accepts tokens above Floor, up to Ceiling.
	Floor, Ceiling fencing.Token
	// Quarantine is how long after its first join the node may not vote.
	Quarantine time.Duration
}

// Initialise makes a node a voter. wait is above 0 while its quarantine lasts.
func (b *Backend) Initialise(ctx context.Context, node int, r Range) (wait time.Duration, err error) {
	n := b.nodes[node]
	got, err := n.call(ctx, initScript, []string{nodeKey, lifeKey}, r.Join, fmt.Sprint(r.Version), b.fingerprint, n.addr,
		r.Floor.String(), r.Ceiling.String(), millis(r.Quarantine))
	if err != nil {
		return 0, err
	}
	switch got.word(0) {
	case "ok":
		return 0, nil
	case "wait":
		var ms int64
		if _, err := fmt.Sscan(got.word(1), &ms); err != nil {
			return 0, fmt.Errorf("%s: %w: wait %q", n.addr, errProtocol, got.word(1))
		}
		return max(time.Millisecond, time.Duration(ms)*time.Millisecond), nil
	case "join":
		return 0, fmt.Errorf("%s: another join has replaced this one, or the node was lost again", n.addr)
	}
	return 0, fmt.Errorf("%s: %w: %q", n.addr, errProtocol, got.words)
}

// Advance raises a node to a goal. Nothing is ever lowered.
func (b *Backend) Advance(ctx context.Context, node int, goal recovery.Goal) error {
	n := b.nodes[node]
	got, err := n.call(ctx, advanceScript, []string{nodeKey}, fmt.Sprint(goal.Version), goal.Fleet, goal.Floor.String(), goal.Ceiling.String())
	if err != nil {
		return err
	}
	if word := got.word(0); word != "ok" {
		return fmt.Errorf("%s: advance refused: %s", n.addr, word)
	}
	return nil
}

// Sweep removes what nobody needs: data of former lives of the servers, and the
// records of locks that were not used for Config.IdleCounters.
func (b *Backend) Sweep(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	b.each(func(i int, n *node) {
		for cursor := "0"; ; {
			got, err := n.call(ctx, sweepScript, []string{nodeKey, lifeKey}, cursor, n.namespace, millis(b.config.IdleCounters))
			if errs[i] = err; err != nil {
				return
			}
			if cursor = got.word(0); cursor == "0" {
				return
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	return nil
}
