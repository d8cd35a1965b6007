package raftstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

var (
	// ErrBusy: too many operations wait for the log. Nothing has happened; slow
	// down and try again. It matches engine.ErrUnavailable.
	ErrBusy = fmt.Errorf("%w: too many operations are waiting, slow down", engine.ErrUnavailable)
	// ErrStopped: the node has stopped, or is stopping. It matches
	// engine.ErrUncertain: an operation under way may have taken effect.
	ErrStopped = fmt.Errorf("%w: the node has stopped", engine.ErrUncertain)
	// ErrConfig: a Config breaks a rule, which the error names.
	ErrConfig = transport.ErrConfig
	// ErrBootstrapped: the node is part of a cluster already.
	ErrBootstrapped = errors.New("node already belongs to a cluster")
	// ErrBehind: a node that is to vote has not caught up with the log yet. Try
	// again when it has.
	ErrBehind = errors.New("node has not caught up")
	// ErrForgotten: a node that the cluster counts as a voter has lost its
	// folder, and with it what it voted for. Remove it from the cluster, then
	// join. It matches engine.ErrInvalid.
	ErrForgotten = fmt.Errorf("%w: node has forgotten its votes", engine.ErrInvalid)
	// ErrStranger: a node that asks to join has a history, and is no member of
	// this cluster. Empty its folder, then join. It matches engine.ErrInvalid.
	ErrStranger = fmt.Errorf("%w: node is no member, and its folder is not empty", engine.ErrInvalid)
	// errExhausted: nothing has happened, nor ever will.
	errExhausted = fmt.Errorf("%w: all tokens up to %d are used up, and gates refuse smaller ones", engine.ErrUnavailable, fencing.MaxToken)
	// ErrSnapshot: bytes are no snapshot that can be restored.
	ErrSnapshot = errors.New("not a usable snapshot")
)

// NotLeaderError says that another node leads, or none. Nothing has happened:
// ask the leader, or again when there is one. It matches engine.ErrUnavailable.
type NotLeaderError struct {
	Node    string // the one that was asked
	Leader  string // empty if it knows none
	Address string // of the leader
}

// Error names the leader.
func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("node %s does not lead, and knows no leader; try again", e.Node)
	}
	return fmt.Sprintf("node %s does not lead; ask %s at %s", e.Node, e.Leader, e.Address)
}

// Is makes errors.Is match engine.ErrUnavailable.
func (e *NotLeaderError) Is(target error) bool { return target == engine.ErrUnavailable }

// proposalError says what an error of the engine means for what was proposed.
// Only where the engine certainly did not append it has nothing happened.
func (n *Node) proposalError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return n.notLeader()
	case errors.Is(err, engine.ErrUncertain):
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrUncertain, err)
}

func (n *Node) notLeader() error {
	address, id := n.raft.LeaderWithID()
	e := &NotLeaderError{Node: n.config.ID}
	if string(id) != n.config.ID { // else it leads, and is not ready
		e.Leader, e.Address = string(id), string(address)
	}
	return e
}
