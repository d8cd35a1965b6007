package raftstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

var (
	// ErrBusy: too many operations wait for the log. The call had no effect; slow down
	// and try again. It matches engine.ErrUnavailable.
	ErrBusy = fmt.Errorf("%w: too many operations are waiting, slow down", engine.ErrUnavailable)
	// ErrStopped: the node has stopped or is stopping. It matches engine.ErrUncertain: an
	// operation in progress may have taken effect.
	ErrStopped = fmt.Errorf("%w: the node has stopped", engine.ErrUncertain)
	// ErrConfig: a Config breaks a rule, which the error names.
	ErrConfig = transport.ErrConfig
	// ErrBootstrapped: the node already belongs to a cluster.
	ErrBootstrapped = errors.New("node already belongs to a cluster")
	// ErrBehind: a node cannot become a voter before it has caught up with the log. Try
	// again later.
	ErrBehind = errors.New("node has not caught up")
	// ErrStateLost: a node that the cluster counts as a voter has lost its data folder,
	// and with it its votes. Remove it from the cluster, then let it join. It matches
	// engine.ErrInvalid.
	ErrStateLost = fmt.Errorf("%w: node has lost its votes", engine.ErrInvalid)
	// ErrNotMember: a joining node has data but is not a member of this cluster. Empty its
	// data folder, then let it join. It matches engine.ErrInvalid.
	ErrNotMember = fmt.Errorf("%w: node is not a member, and its data folder is not empty", engine.ErrInvalid)
	// errTooManyOpen: nobody can tell whether the servers of older versions still grant.
	errTooManyOpen = fmt.Errorf("%w: too many Redis servers were replaced while most others could not be reached; "+
		"make a majority of the nodes reachable, or replace the fleet", engine.ErrUnavailable)
	// ErrSnapshot: bytes are not a snapshot that can be restored.
	ErrSnapshot = errors.New("not a usable snapshot")
)

// NotLeaderError reports that this node is not the leader. The call had no effect: call
// the leader, or try again when there is one. It matches engine.ErrUnavailable.
type NotLeaderError struct {
	Node    string // the node that was called
	Leader  string // empty if unknown
	Address string // of the leader
	Removed bool   // from the cluster: it will know no leader again
}

// Error names the leader.
func (e *NotLeaderError) Error() string {
	switch {
	case e.Removed:
		return fmt.Sprintf("node %s was removed from the cluster; use another one", e.Node)
	case e.Leader == "":
		return fmt.Sprintf("node %s does not lead, and knows no leader; try again", e.Node)
	}
	return fmt.Sprintf("node %s does not lead; ask %s at %s", e.Node, e.Leader, e.Address)
}

// Is makes errors.Is match engine.ErrUnavailable.
func (e *NotLeaderError) Is(target error) bool { return target == engine.ErrUnavailable }

// proposalError converts an error of the Raft library. The proposal had no effect only if
// the library certainly did not append it.
func (n *Node) proposalError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return n.notLeader()
	case errors.Is(err, engine.ErrUncertain):
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrUncertain, err)
}

func (n *Node) notLeader() error {
	address, id := n.raft.LeaderWithID()
	e := &NotLeaderError{Node: n.config.ID, Removed: n.Removed()}
	if string(id) != n.config.ID { // otherwise it leads, but is not ready
		e.Leader, e.Address = string(id), string(address)
	}
	return e
}
