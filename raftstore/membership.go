package raftstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxLag is how many entries a node may be behind and still be made a
	// voter.
	maxLag = 64
	// catchUpPause is the time between two looks at whether a node has caught
	// up.
	catchUpPause = 20 * time.Millisecond
)

// Member is a node as the cluster knows it.
type Member struct {
	ID      string
	Address string
	// Voter: it counts towards a majority. A node that has just joined does
	// not.
	Voter bool
	// Lag is how many entries of the leader's log it does not have. Only the
	// leader's Status tells it, and only of nodes that it has heard of since it
	// leads: LagKnown.
	Lag      uint64
	LagKnown bool
}

// Joiner is a node that asks to be let in.
type Joiner struct {
	ID      string
	Address string
	// Remembers: it has the log and the votes that it had. A node on an empty
	// folder does not, and is not let in while the cluster counts it as a
	// voter. One that remembers is let in only if it is a member: else what it
	// remembers is another cluster, or a time before it was removed.
	Remembers bool
}

// Membership is what a joining node asks of the leader: a *Node in this
// process, or the way to one.
type Membership interface {
	// AddLearner makes a node receive the log without a vote. It returns an
	// index that the node must reach before it may vote. ErrForgotten says that
	// the node is a voter, and does not remember what it voted for, ErrStranger
	// that it remembers, and is no member.
	AddLearner(ctx context.Context, j Joiner) (index uint64, err error)
	// Promote gives a learner that has applied so much a vote.
	Promote(ctx context.Context, id string, applied uint64) error
	// Remove takes a node out of the cluster.
	Remove(ctx context.Context, id string) error
}

var _ Membership = (*Node)(nil)

// Bootstrap begins a cluster of this node alone; others join it. It is called
// once in the life of a cluster, on one node; ErrBootstrapped says that this was
// done before, and is safe to ignore.
//
// There is no way to begin with several voters: one of them that has lost its
// folder could not be told from one that is new.
func (n *Node) Bootstrap() error {
	if n.CatchingUp() {
		return fmt.Errorf("bootstrap: %w: it was let in, and has not caught up; join again", ErrBootstrapped)
	}
	c := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(n.ID()), Address: raft.ServerAddress(n.Address())}}}
	err := n.wait(context.Background(), n.raft.BootstrapCluster(c))
	if errors.Is(err, raft.ErrCantBootstrap) {
		err = ErrBootstrapped
		if len(n.Members()) == 0 {
			err = fmt.Errorf("%w: it was interrupted when it began one; empty its folder", ErrBootstrapped)
		}
	}
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	n.admission.admit()
	return nil
}

// Join brings this node, which is new, into the cluster of the leader: first
// without a vote, and with one when it has caught up. A node that voted with an
// empty log would make the cluster count on what it does not have.
func (n *Node) Join(ctx context.Context, leader Membership) error {
	remembers := n.admission.remembers()
	index, err := leader.AddLearner(ctx, Joiner{ID: n.ID(), Address: n.Address(), Remembers: remembers})
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if !remembers || n.CatchingUp() {
		if err := n.catchUp.begin(index); err != nil {
			return fmt.Errorf("join: %w", err)
		}
		n.admission.follow() // that it has no vote was committed after its start
	}
	for {
		applied := n.raft.AppliedIndex()
		if applied >= index {
			if err := n.catchUp.finish(); err != nil { // a voter may have to vote at once
				return fmt.Errorf("join: %w", err)
			}
			err := leader.Promote(ctx, n.ID(), applied)
			if err == nil {
				return nil
			}
			if !errors.Is(err, ErrBehind) {
				return fmt.Errorf("join: %w", err)
			}
		}
		select {
		case <-time.After(catchUpPause):
		case <-ctx.Done():
			return fmt.Errorf("join: %w: at %d of %d: %w", ErrBehind, applied, index, context.Cause(ctx))
		case <-n.stopped:
			return fmt.Errorf("join: %w", ErrStopped)
		}
	}
}

// AddLearner makes a node receive the log without a vote. This node must lead.
// A node that votes and remembers keeps its vote.
func (n *Node) AddLearner(ctx context.Context, j Joiner) (uint64, error) {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if !n.Leads() {
		return 0, n.notLeader()
	}
	m, voter := n.voter(j.ID)
	switch {
	case voter && !j.Remembers:
		return 0, forgottenVoter(j.ID)
	case j.Remembers && m.ID == "":
		return 0, fmt.Errorf("add %s: %w: its folder is of another cluster, or of a time before it was removed; "+
			"stop it, empty its folder and join again", j.ID, ErrStranger)
	case voter && m.Address == j.Address:
		return n.raft.LastIndex(), nil
	}
	f := n.raft.AddNonvoter(raft.ServerID(j.ID), raft.ServerAddress(j.Address), 0, enqueueTimeout)
	if err := n.wait(ctx, f); err != nil {
		return 0, fmt.Errorf("add %s: %w", j.ID, n.proposalError(err))
	}
	// The engine leaves a voter a voter. A promotion whose caller did not wait
	// may have come first.
	if _, voter := n.voter(j.ID); voter && !j.Remembers {
		return 0, forgottenVoter(j.ID)
	}
	return f.Index(), nil
}

// voter finds a member, and whether it has a vote.
func (n *Node) voter(id string) (Member, bool) {
	for _, m := range n.Members() {
		if m.ID == id {
			return m, m.Voter
		}
	}
	return Member{}, false
}

func forgottenVoter(id string) error {
	return fmt.Errorf("add %s: %w: the cluster counts it as a voter, and its folder is empty; run `leased cluster remove %s`, then let it join",
		id, ErrForgotten, id)
}

// Promote gives a learner a vote. This node must lead.
func (n *Node) Promote(ctx context.Context, id string, applied uint64) error {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if !n.Leads() {
		return n.notLeader()
	}
	if last := n.raft.LastIndex(); applied+maxLag < last {
		return fmt.Errorf("promote %s: %w: it is at %d of %d", id, ErrBehind, applied, last)
	}
	for _, m := range n.Members() {
		if m.ID != id {
			continue
		}
		f := n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(m.Address), 0, enqueueTimeout)
		if err := n.wait(ctx, f); err != nil {
			return fmt.Errorf("promote %s: %w", id, n.proposalError(err))
		}
		return nil
	}
	return fmt.Errorf("promote %s: %w: no such member; add it first", id, engine.ErrInvalid)
}

// Remove takes a node out of the cluster, dead or alive. This node must lead. A
// leader that removes itself leads no more; the others elect one.
func (n *Node) Remove(ctx context.Context, id string) error {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if !n.Leads() {
		return n.notLeader()
	}
	if err := n.wait(ctx, n.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout)); err != nil {
		return fmt.Errorf("remove %s: %w", id, n.proposalError(err))
	}
	return nil
}

// Leave takes this node out of the cluster for good. It goes on running, without
// a part in anything: stop it and empty its folder.
func (n *Node) Leave(ctx context.Context, leader Membership) error {
	if err := leader.Remove(ctx, n.ID()); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// Stop hands leadership over, if this node leads others, and closes the node. A
// handover that fails, or takes longer than ctx, does not keep it from closing.
func (n *Node) Stop(ctx context.Context) error {
	others := 0
	for _, m := range n.Members() {
		if m.Voter && m.ID != n.ID() {
			others++
		}
	}
	if others > 0 && n.Leads() {
		if err := n.Transfer(ctx, ""); err != nil {
			n.logger.Warn("stops without a handover", "error", err)
		}
	}
	return n.Close()
}

// Transfer hands leadership over to the follower that is most up to date, or to
// the one with this ID. It stops serving first: nothing is promised while two
// nodes may believe that they lead. If that fails it serves on.
func (n *Node) Transfer(ctx context.Context, to string) error {
	n.leadMu.Lock()
	led := n.retire()
	n.leadMu.Unlock()
	if !led {
		return n.notLeader()
	}
	var err error
	if to == "" {
		err = n.wait(ctx, n.raft.LeadershipTransfer())
	} else {
		err = fmt.Errorf("%w: no member %s", engine.ErrInvalid, to)
		for _, m := range n.Members() {
			if m.ID == to {
				err = n.wait(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(m.ID), raft.ServerAddress(m.Address)))
			}
		}
	}
	if err == nil {
		return nil
	}
	if n.raft.State() == raft.Leader {
		go n.takeOver()
	}
	return fmt.Errorf("transfer leadership: %w", err)
}

// Members are the nodes of the cluster, as this node knows them.
func (n *Node) Members() []Member {
	future := n.raft.GetConfiguration() // answers at once
	if future.Error() != nil {
		return nil
	}
	var members []Member
	for _, s := range future.Configuration().Servers {
		members = append(members, Member{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return members
}

// wait waits for the engine, but not longer than ctx or the node.
func (n *Node) wait(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	case <-n.stopped:
		return ErrStopped
	}
}

// futureFunc is a call that blocks, as a future.
type futureFunc func() error

// Error makes the call.
func (f futureFunc) Error() error { return f() }
