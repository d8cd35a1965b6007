package raftstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// maxLag is the maximum number of entries that a new voter may be behind.
	maxLag = 64
	// catchUpPause is the time between two checks whether a node has caught up.
	catchUpPause = 20 * time.Millisecond
)

// Member is a member of the cluster.
type Member struct {
	ID      string
	Address string
	// Voter is true if the node counts towards a majority. A node that has just joined
	// does not.
	Voter bool
	// Lag is the number of entries of the leader's log that the node does not have. Only
	// the leader knows it, and only for nodes that have answered it (LagKnown).
	Lag      uint64
	LagKnown bool
	// WentBack is true if this node refuses the member, because its data folder has
	// gone back in time. Remove the member, empty its folder and let it join.
	WentBack bool
}

// Joiner is a node that wants to join.
type Joiner struct {
	ID      string
	Address string
	// HasState is true if the node still has its log and its votes. A node with an
	// empty data folder does not, and is refused while the cluster counts it as a voter.
	// A node with data is admitted only if it is a member: otherwise its data is from
	// another cluster, or from before it was removed.
	HasState bool
}

// Membership has the calls of a joining node to the leader: a *Node in this process, or a
// client of a remote one.
type Membership interface {
	// AddLearner adds a node that receives the log without a vote. It returns the index
	// that the node must apply before it may vote. ErrStateLost means that the node is a
	// voter that has lost its votes, ErrNotMember that it has data but is not a member.
	AddLearner(ctx context.Context, j Joiner) (index uint64, err error)
	// Promote makes a learner that has applied this index a voter.
	Promote(ctx context.Context, id string, applied uint64) error
}

var _ Membership = (*Node)(nil)

// Bootstrap creates a cluster of this node alone; others join it. Call it once per
// cluster, on one node. ErrBootstrapped means that this was done before and can be
// ignored.
//
// A cluster cannot start with several voters: a voter that lost its data folder could not
// be distinguished from a new one.
func (n *Node) Bootstrap() error {
	if n.CatchingUp() {
		return fmt.Errorf("bootstrap: %w: the node has joined but has not caught up; join again", ErrBootstrapped)
	}
	c := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(n.ID()), Address: raft.ServerAddress(n.Address())}}}
	err := n.wait(context.Background(), n.raft.BootstrapCluster(c))
	if errors.Is(err, raft.ErrCantBootstrap) {
		err = ErrBootstrapped
		if len(n.Members()) == 0 {
			err = fmt.Errorf("%w: an earlier bootstrap was interrupted; empty the data folder", ErrBootstrapped)
		}
	}
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	n.admission.admit()
	return nil
}

// Join makes this node join the cluster of the leader, first without a vote, and as a voter
// when it has caught up. A voter with an empty log would count towards a majority without
// having the data.
func (n *Node) Join(ctx context.Context, leader Membership) error {
	index, err := n.learn(ctx, leader)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	for {
		applied := n.raft.AppliedIndex()
		if applied >= index {
			if err := n.catchUp.finish(); err != nil { // a voter may have to vote immediately
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

// learn makes this node a member without a vote, and returns the index that it must apply
// before it may vote.
func (n *Node) learn(ctx context.Context, leader Membership) (index uint64, err error) {
	defer n.admission.beginJoin()()
	hasState := n.admission.hasState()
	if index, err = leader.AddLearner(ctx, Joiner{ID: n.ID(), Address: n.Address(), HasState: hasState}); err != nil {
		return 0, err
	}
	if !hasState || n.CatchingUp() {
		if err := n.noteJoined(index, hasState); err != nil {
			return 0, err
		}
		if err := n.catchUp.begin(index); err != nil {
			return 0, err
		}
		n.admission.follow() // the leader has committed, after the start of this node, that it has no vote
	}
	return index, nil
}

// AddLearner adds a node that receives the log without a vote. This node must lead. A
// voter that still has its votes stays a voter.
func (n *Node) AddLearner(ctx context.Context, j Joiner) (uint64, error) {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if !n.Leads() {
		return 0, n.notLeader()
	}
	m, voter := n.voter(j.ID)
	switch {
	case voter && !j.HasState:
		return 0, voterWithoutState(j.ID)
	case j.HasState && m.ID == "":
		return 0, fmt.Errorf("add %s: %w: its data folder is from another cluster, or from before it was removed; "+
			"stop it, empty its folder and join again", j.ID, ErrNotMember)
	case voter && m.Address == j.Address:
		return n.raft.LastIndex(), nil
	}
	for _, other := range n.Members() { // an error of the Raft library counts as an uncertain outcome
		if other.ID != j.ID && other.Address == j.Address {
			return 0, fmt.Errorf("add %s: %w: its address %s is that of member %s; run `leased cluster remove %[4]s` if that "+
				"member is gone, or set another raft-advertise", j.ID, engine.ErrInvalid, j.Address, other.ID)
		}
	}
	f := n.raft.AddNonvoter(raft.ServerID(j.ID), raft.ServerAddress(j.Address), 0, enqueueTimeout)
	if err := n.wait(ctx, f); err != nil {
		return 0, fmt.Errorf("add %s: %w", j.ID, n.proposalError(err))
	}
	// The Raft library does not demote a voter. An earlier promotion whose caller did not
	// wait may have been committed first.
	if _, voter := n.voter(j.ID); voter && !j.HasState {
		return 0, voterWithoutState(j.ID)
	}
	n.logger.Info("member added", "member", j.ID, "address", j.Address, "voter", voter)
	return f.Index(), nil
}

// voter returns a member, and whether it is a voter.
func (n *Node) voter(id string) (Member, bool) {
	for _, m := range n.Members() {
		if m.ID == id {
			return m, m.Voter
		}
	}
	return Member{}, false
}

func voterWithoutState(id string) error {
	return fmt.Errorf("add %s: %w: the cluster counts it as a voter, but its data folder is empty; run `leased "+
		"cluster remove %s`, then let it join",
		id, ErrStateLost, id)
}

// Promote makes a learner a voter. This node must lead.
func (n *Node) Promote(ctx context.Context, id string, applied uint64) error {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if !n.Leads() {
		return n.notLeader()
	}
	if last := n.raft.LastIndex(); applied+maxLag < last {
		return fmt.Errorf("promote %s: %w: it is at %d of %d", id, ErrBehind, applied, last)
	}
	m, voter := n.voter(id)
	if m.ID == "" {
		return fmt.Errorf("promote %s: %w: no such member; add it first", id, engine.ErrInvalid)
	}
	if err := n.wait(ctx, n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(m.Address), 0,
		enqueueTimeout)); err != nil {
		return fmt.Errorf("promote %s: %w", id, n.proposalError(err))
	}
	if !voter {
		n.logger.Info("member promoted to a voter", "member", id, "address", m.Address)
	}
	return nil
}

// Remove removes a node from the cluster, whether it runs or not. This node must lead. A
// leader that removes itself steps down, and the others elect a new one. A removed
// node keeps running but serves nothing: stop it and empty its data folder.
func (n *Node) Remove(ctx context.Context, id string) error {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	if !n.Leads() {
		return n.notLeader()
	}
	m, _ := n.voter(id)
	removal := n.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout)
	if err := n.wait(ctx, removal); err != nil {
		return fmt.Errorf("remove %s: %w", id, n.proposalError(err))
	}
	n.logger.Info("member removed", "member", id)
	if m.ID != "" && id != n.ID() {
		ctx, cancel := context.WithTimeout(ctx, tellTimeout)
		defer cancel()
		if err := n.wait(ctx, futureFunc(func() error { return n.tell(m, removal.Index()) })); err != nil {
			n.logger.Warn("the removed member may not know that it was removed", "member", id, "error", err)
		}
	}
	n.RecheckPeers()
	return nil
}

const (
	tellTimeout = time.Second
	tellEntries = 1000 // sent at most
)

// tell sends a removed member the entries up to its removal. The Raft library does not if a request to the
// member is in flight when the removal commits. The term is that of the entry, in which this node led: if
// it has lost the leadership since, the request is merely a late one.
func (n *Node) tell(m Member, removal uint64) error {
	last, known := n.progress.Of(m.ID)
	switch {
	case last >= removal:
		return nil
	case !known || removal-last > tellEntries:
		return fmt.Errorf("it has not acknowledged the last %d entries", tellEntries)
	}
	entries := make([]*raft.Log, removal-last+1) // the first one is sent as the previous entry
	for i := range entries {
		entries[i] = new(raft.Log)
		if err := n.log.GetLog(last+uint64(i), entries[i]); err != nil {
			return err
		}
	}
	id, self := raft.ServerID(n.ID()), raft.ServerAddress(n.Address())
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
		Addr: n.transport.EncodePeer(id, self)}
	request := &raft.AppendEntriesRequest{RPCHeader: header, Term: entries[len(entries)-1].Term,
		PrevLogEntry: last, PrevLogTerm: entries[0].Term, Entries: entries[1:], LeaderCommitIndex: removal}
	return n.transport.AppendEntries(raft.ServerID(m.ID), raft.ServerAddress(m.Address), request,
		new(raft.AppendEntriesResponse))
}

// Members returns the members of the cluster that this node knows.
func (n *Node) Members() []Member {
	future := n.raft.GetConfiguration() // returns immediately
	if future.Error() != nil {
		return nil
	}
	var members []Member
	for _, s := range future.Configuration().Servers {
		members = append(members, Member{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return members
}

// Removed reports whether this node was removed from the cluster and has received that. A node that was not reachable
// then does not know it.
func (n *Node) Removed() bool {
	members := n.Members()
	listed := slices.ContainsFunc(members, func(m Member) bool { return m.ID == n.ID() })
	return len(members) > 0 && !listed && !n.CatchingUp()
}

// wait waits for a future, until ctx ends or the node stops.
func (n *Node) wait(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", engine.ErrUncertain, engine.Cause(ctx))
	case <-n.stopped:
		return ErrStopped
	}
}

// futureFunc turns a blocking call into a future.
type futureFunc func() error

func (f futureFunc) Error() error { return f() }
