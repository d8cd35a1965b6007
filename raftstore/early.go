package raftstore

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/transport"
)

const (
	// earlyStep is the time between the turns of the followers of a dead leader.
	earlyStep = 20 * time.Millisecond
	// earlyLimit bounds the check of a leader's port, and the wait for the other voters.
	earlyLimit = 200 * time.Millisecond
	// earlyPause is the time after an early election in which the next leader is not replaced
	// early. Members that crash one after the other cause elections at the pace of the
	// heartbeat timeout.
	earlyPause = 5 * time.Second
)

// earlyElection is the last leader that this node found dead.
type earlyElection struct {
	term uint64 // of the leader
	at   time.Time
}

// peerLeft is called when the last connection from a member has ended.
func (n *Node) peerLeft(id string) {
	select {
	case <-n.started:
	default:
		return
	}
	if leader, _ := n.Leader(); leader != id {
		return
	}
	select {
	case n.left <- id:
	default:
	}
}

// watchConnections replaces a leader whose process has ended without waiting for the
// heartbeat timeout. See docs/adr/0016-early-election.md.
func (n *Node) watchConnections() {
	for {
		select {
		case id := <-n.left:
			n.replaceEarly(id)
		case <-n.stopped:
			return
		}
	}
}

// replaceEarly starts an election if this node and a majority find the leader dead. The
// followers take turns: two candidates at the same time would split the votes. It ends when
// the leader is not the same any more, or when the heartbeat timeout has passed.
func (n *Node) replaceEarly(leader string) {
	voters, turn := n.turnAfter(leader)
	if turn < 0 {
		return
	}
	timer := time.NewTimer(time.Duration(turn) * earlyStep)
	defer timer.Stop()
	round := time.Duration(voters) * earlyStep
	for range n.config.HeartbeatTimeout/round + 1 {
		select {
		case <-timer.C:
		case <-n.stopped:
			return
		}
		if known, _ := n.Leader(); known != leader {
			return
		}
		term := n.raft.CurrentTerm()
		if n.isDead(leader, term) && n.majorityConfirms(leader, term) && n.raft.CurrentTerm() == term {
			n.logger.Warn("the process of the leader has ended: starting an election", "leader", leader)
			n.transport.(*transport.TCP).Campaign(n.ID())
			return
		}
		timer.Reset(round)
	}
}

// isDead reports whether the process of the leader of this term has ended, and may be replaced
// early: all its connections to this node have ended, and its port refuses a connection. A
// leader that cannot be reached, or has no room for connections, is not known to be dead.
func (n *Node) isDead(leader string, term uint64) bool {
	tcp, ok := n.transport.(*transport.TCP)
	known, address := n.Leader()
	if !ok || leader == "" || known != leader || leader == n.ID() || n.CatchingUp() {
		return false
	}
	if tcp.Receives(leader) || !refusesConnections(address) {
		return false
	}
	last, now := n.early.Load(), stopwatch.Now().Time()
	if last != nil && last.term != term && now.Sub(last.at) < earlyPause {
		return false
	}
	if last == nil || last.term != term {
		n.early.CompareAndSwap(last, &earlyElection{term: term, at: now})
	}
	return true
}

// refusesConnections reports whether no process listens on an address.
func refusesConnections(address string) bool {
	conn, err := net.DialTimeout("tcp", address, earlyLimit)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// majorityConfirms asks the other voters whether they find the leader dead, too. A single
// follower may have the wrong address, or be behind a firewall.
func (n *Node) majorityConfirms(leader string, term uint64) bool {
	request := &raft.RequestPreVoteRequest{Term: term + 1, LastLogIndex: n.raft.LastIndex(), RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.ID()),
		Addr: n.transport.EncodePeer(raft.ServerID(n.ID()), n.transport.LocalAddr())}}
	members := n.Members()
	answers := make(chan bool, len(members))
	voters, confirmed := 0, 1
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		if m.ID == leader || m.ID == n.ID() {
			continue
		}
		go func() {
			var response raft.RequestPreVoteResponse
			err := n.transport.RequestPreVote(raft.ServerID(m.ID), raft.ServerAddress(m.Address), request, &response)
			answers <- err == nil && response.Granted
		}()
	}
	limit := time.NewTimer(earlyLimit)
	defer limit.Stop()
	for asked := voters - 2; confirmed <= voters/2; asked-- {
		if asked <= 0 {
			return false
		}
		select {
		case yes := <-answers:
			if yes {
				confirmed++
			}
		case <-limit.C:
			return false
		case <-n.stopped:
			return false
		}
	}
	return true
}

// confirms reports whether this node finds its leader dead and would vote for a candidate. The
// Raft library would refuse the pre-vote, because it still knows the leader.
func (n *Node) confirms(request *raft.RequestPreVoteRequest) bool {
	leader, _ := n.Leader()
	term := n.raft.CurrentTerm()
	return request.Term == term+1 && request.LastLogIndex >= n.raft.LastIndex() && n.isDead(leader, term)
}
