package raftstore

import (
	"strings"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// Status is the state of a node.
type Status struct {
	ID      string
	Address string
	// State is "leader", "follower", "candidate" or "stopped". Serves is true for a leader
	// that accepts calls.
	State  string
	Serves bool
	Leader string // that the node knows
	Term   uint64
	// Generation is the number of leaderships that this replica has applied.
	Generation uint64
	LastIndex  uint64 // in its log
	Commit     uint64 // known to be committed
	Applied    uint64 // by its machine
	// Chain is the hash of the applied entries. Nodes with the same Chain.Index must have
	// the same Chain.Hash.
	Chain     replica.Chain
	LastToken fencing.Token
	Counts    machine.Counts
	// LongestQueue is the number of waiters of the lock that has most.
	LongestQueue int
	Members      []Member
}

// Status returns the state of this node. It contacts no other node.
func (n *Node) Status() Status {
	leader, _ := n.Leader()
	s := Status{ID: n.ID(), Address: n.Address(), State: stateName(n.raft.State()), Serves: n.Leads(), Leader: leader,
		Term: n.raft.CurrentTerm(), Applied: n.raft.AppliedIndex(), Commit: n.raft.CommitIndex(),
		LastIndex: n.raft.LastIndex(),
		Members:   n.Members()}
	for i := range s.Members {
		s.Members[i].WentBack = n.memory.IsRefused(s.Members[i].ID)
	}
	if s.Serves {
		n.addLags(s.Members, s.LastIndex)
	}
	s.Chain = n.fsm.Chain()
	n.fsm.Read(func(m *machine.Machine) {
		s.LastToken, s.Counts, s.Generation, s.LongestQueue = m.LastToken(), m.Count(), m.Generation(), m.LongestQueue()
	})
	return s
}

// addLags sets how far each member is behind this leader.
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
	if s == raft.Shutdown {
		return "stopped"
	}
	return strings.ToLower(s.String())
}
