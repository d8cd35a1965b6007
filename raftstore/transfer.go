package raftstore

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// answerPoll is the time between two checks whether a follower has answered.
	answerPoll = 10 * time.Millisecond
	// minAnswerLimit bounds the wait for the answer of a follower. With a long HeartbeatTimeout it
	// is longer: the Raft library sends at least five heartbeats in one.
	minAnswerLimit = time.Second
)

// Transfer transfers leadership to the most up-to-date follower, or to the node with this
// ID. A follower that does not answer is refused before anything changes. Then Transfer stops
// serving, so that it renews nothing while the next leader may already serve. If the transfer
// fails, it serves again.
func (n *Node) Transfer(ctx context.Context, to string) error {
	if !n.Leads() {
		return n.notLeader()
	}
	m, err := n.successor(ctx, to)
	if err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	n.leadMu.Lock()
	led := n.retire()
	n.leadMu.Unlock()
	if !led {
		return n.notLeader()
	}
	err = n.wait(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(m.ID), raft.ServerAddress(m.Address)))
	if err == nil {
		n.deposed("transfer")
		return nil
	}
	if n.raft.State() == raft.Leader {
		go n.takeOver()
	}
	return fmt.Errorf("transfer leadership: %w", err)
}

// successor returns the most up-to-date voter besides this node, or the one with this ID. It
// returns only a voter that has answered a request since the call, such as a heartbeat: the
// Raft library refuses entries while it transfers the leadership, so a transfer to a node that hangs
// would stop the service.
func (n *Node) successor(ctx context.Context, to string) (Member, error) {
	answered := map[string]uint64{} // how often each candidate had answered before
	var candidates []Member
	for _, m := range n.Members() {
		if m.Voter && m.ID != n.ID() && (to == "" || m.ID == to) {
			candidates = append(candidates, m)
			answered[m.ID] = n.progress.Answers(m.ID)
		}
	}
	if len(candidates) == 0 {
		return Member{}, fmt.Errorf("%w: no other voter %s", engine.ErrInvalid, to)
	}
	limit := max(minAnswerLimit, n.config.HeartbeatTimeout/2)
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	poll := time.NewTicker(answerPoll)
	defer poll.Stop()
	for over := false; ; {
		var best Member
		var acknowledged, most uint64 // by the best one, by any
		for _, m := range candidates {
			index, _ := n.progress.Of(m.ID)
			most = max(most, index)
			if n.progress.Answers(m.ID) > answered[m.ID] && (best.ID == "" || index > acknowledged) {
				best, acknowledged = m, index
			}
		}
		switch {
		case best.ID != "" && (acknowledged == most || over):
			return best, nil
		case over && to != "":
			return Member{}, fmt.Errorf("%w: %s does not answer within %v; nothing has changed", engine.ErrUnavailable,
				to, limit)
		case over:
			return Member{}, fmt.Errorf("%w: no other voter answers within %v; nothing has changed", engine.ErrUnavailable,
				limit)
		}
		select {
		case <-poll.C:
		case <-timeout.C:
			over = true
		case <-ctx.Done():
			return Member{}, context.Cause(ctx)
		case <-n.stopped:
			return Member{}, ErrStopped
		}
	}
}
