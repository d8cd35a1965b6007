package raftstore

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// contactSteps is the number of turns in one HeartbeatTimeout. The followers of a lost leader
// take turns: two candidates at the same time would split the votes.
const contactSteps = 5

// watchContact makes a follower notice a lost leader when HeartbeatTimeout has passed since
// the last contact. The Raft library checks only when a timer of one to two times
// HeartbeatTimeout expires, which does not restart at a contact. Until then the follower
// refuses its vote. An election still begins only after a full HeartbeatTimeout without
// contact: the library checks that itself.
func (n *Node) watchContact() {
	timer := time.NewTimer(n.config.HeartbeatTimeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.stopped:
			return
		}
		left := n.contactLeft()
		if left <= 0 {
			if err := n.catchUp.checkContact(); err != nil {
				n.logger.Warn("cannot check early whether the leader is lost; the Raft library checks later", "error", err)
			}
			left = n.config.HeartbeatTimeout
		}
		timer.Reset(left)
	}
}

// contactLeft returns the time until this node should check its contact with the leader.
func (n *Node) contactLeft() time.Duration {
	leader, _ := n.Leader()
	last := n.raft.LastContact()
	_, turn := n.turnAfter(leader)
	if leader == "" || last.IsZero() || turn < 0 || n.raft.State() != raft.Follower {
		return n.config.HeartbeatTimeout
	}
	due := n.config.HeartbeatTimeout + time.Duration(turn)*n.config.HeartbeatTimeout/contactSteps
	return due - stopwatch.Now().Time().Sub(last)
}

// turnAfter returns the number of voters without the leader, and the position of this node
// among them, -1 if it is not one of them.
func (n *Node) turnAfter(leader string) (number, turn int) {
	var voters []string
	for _, m := range n.Members() {
		if m.Voter && m.ID != leader {
			voters = append(voters, m.ID)
		}
	}
	slices.Sort(voters)
	return len(voters), slices.Index(voters, n.ID())
}

// checkContact makes the Raft library check the contact with the leader now. The library does
// that when its timeouts become shorter, so they are raised by a millisecond and set back. A
// node that has not caught up starts no election.
func (c *catchUp) checkContact() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending() {
		return nil
	}
	timeout := c.node.config.HeartbeatTimeout
	if err := c.timeouts(timeout + time.Millisecond); err != nil {
		return err
	}
	return c.timeouts(timeout)
}
