package raftstore

import (
	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// Status is how a node is doing.
type Status struct {
	ID      string
	Address string
	// State is "leader", "follower", "candidate" or "stopped". Serves says that
	// a leader lets calls in.
	State  string
	Serves bool
	Leader string // as far as the node knows
	Term   uint64
	// Generation is the number of leaders so far, as this replica knows.
	Generation uint64
	LastIndex  uint64 // in its log
	Commit     uint64 // known to be committed
	Applied    uint64 // by its machine
	// Lag is how many committed entries that it knows of are not yet applied.
	// How far it is behind the leader is in the leader's Members.
	Lag uint64
	// Chain is its history: nodes with the same Chain.Index must have the same
	// Chain.Hash.
	Chain     replica.Chain
	LastToken fencing.Token
	Counts    machine.Counts
	Members   []Member
	Failure   error // why it ended by itself
}

// Status tells how this node is doing, from what it has: it asks nobody.
func (n *Node) Status() Status {
	leader, _ := n.Leader()
	s := Status{ID: n.ID(), Address: n.Address(), State: stateName(n.raft.State()), Serves: n.Leads(), Leader: leader,
		Term: n.raft.CurrentTerm(), Applied: n.raft.AppliedIndex(), Commit: n.raft.CommitIndex(), LastIndex: n.raft.LastIndex(),
		Members: n.Members(), Failure: n.Failure()}
	s.Lag = s.Commit - min(s.Commit, s.Applied)
	if s.Serves {
		n.addLags(s.Members, s.LastIndex)
	}
	s.Chain = n.fsm.Chain()
	n.fsm.Read(func(m *machine.Machine) {
		s.LastToken, s.Counts, s.Generation = m.LastToken(), m.Count(), m.Generation()
	})
	return s
}

// addLags fills in how far each member is behind this leader.
func (n *Node) addLags(members []Member, last uint64) {
	for i := range members {
		m := &members[i]
		has, known := n.progress.Of(m.ID)
		if m.ID == n.ID() {
			has, known = last, true
		}
		if known {
			m.Lag, m.LagKnown = last-min(last, has), true
		}
	}
}

func stateName(s raft.RaftState) string {
	switch s {
	case raft.Leader:
		return "leader"
	case raft.Follower:
		return "follower"
	case raft.Candidate:
		return "candidate"
	}
	return "stopped"
}
