package raftstore

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/transport"
)

// admission keeps the peers of a node out until it is known what the node may
// say to them.
//
// A voter that has lost its folder has forgotten what it voted for and what it
// said that it has. If it answered its peers it would be counted as the voter
// that it was, and two of three could elect a leader without an entry that was
// committed. The engine does not tell such a node from a new one, so here a
// node on an empty folder hears nobody until it has begun a cluster itself, or
// a leader has committed, after its start, that it has no vote.
//
// A node that is alone in its cluster hears nobody either: only it could have
// let others in. Else one that began anew on its emptied folder would follow
// the cluster that it was part of.
//
// See docs/adr/0013-empty-node-is-not-admitted.md.
type admission struct {
	transport.Transport
	node    *Node
	heard   chan raft.RPC
	stage   atomic.Int32
	refused atomic.Int64 // requests that were not heard
	counted atomic.Bool  // a vote was asked for: peers count on this node
}

// The stages of an admission.
const (
	forgotten int32 = iota // the folder is empty
	alone                  // perhaps the only member
	admitted
)

// newAdmission looks at what a node remembers. A term alone is nothing: it is
// what a Bootstrap leaves that was interrupted. A folder with snapshots but
// without terms has lost its votes, and is refused. A node that was catching up
// goes on: it was let in since its folder was empty.
func newAdmission(n *Node) (*admission, error) {
	a := &admission{Transport: n.transport, node: n, heard: make(chan raft.RPC)}
	term, err := n.storage.Stable.GetUint64([]byte("CurrentTerm"))
	if err != nil && err.Error() != "not found" { // the engine's contract for a StableStore
		return nil, fmt.Errorf("read term: %w", err)
	}
	last, err := n.storage.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	snapshots, err := n.storage.Snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	switch {
	case n.catchUp.pending():
		a.stage.Store(admitted)
	case last > 0 || term > 0 && len(snapshots) > 0:
		a.stage.Store(alone)
	case len(snapshots) > 0:
		return nil, fmt.Errorf("%w: the folder has snapshots but neither log nor votes; remove the node from its cluster, "+
			"empty the folder and join again", ErrForgotten)
	}
	return a, nil
}

// Consumer is where the engine takes requests from.
func (a *admission) Consumer() <-chan raft.RPC { return a.heard }

// remembers: the node has the log and the votes of its folder.
func (a *admission) remembers() bool { return a.stage.Load() != forgotten }

// admit lets peers in, as far as they are members.
func (a *admission) admit() { a.stage.CompareAndSwap(forgotten, alone) }

// follow lets peers in, whatever this node believes of itself meanwhile.
func (a *admission) follow() { a.stage.Store(admitted) }

// run passes requests on until the node stops.
func (a *admission) run() {
	for {
		select {
		case rpc := <-a.Transport.Consumer():
			if err := a.node.catchUp.finish(); err != nil {
				a.node.logger.Error("cannot end catching up", "error", err)
			}
			if !a.open() {
				a.refuse(rpc)
				continue
			}
			select {
			case a.heard <- rpc:
			case <-a.node.stopped:
				return
			}
		case <-a.node.stopped:
			return
		}
	}
}

// open: requests may be heard.
func (a *admission) open() bool {
	switch a.stage.Load() {
	case admitted:
		return true
	case forgotten:
		return false
	}
	members := a.node.Members()
	if len(members) == 1 && members[0].ID == a.node.ID() {
		return false
	}
	a.stage.Store(admitted)
	return true
}

func (a *admission) refuse(rpc raft.RPC) {
	a.refused.Add(1)
	switch rpc.Command.(type) {
	case *raft.RequestVoteRequest, *raft.RequestPreVoteRequest:
		if !a.counted.Swap(true) {
			a.node.logger.Warn("peers count on the vote of this node, and it does not vote: it has lost its folder, or began another cluster; "+
				"remove it from their cluster, empty its folder and join again", "id", a.node.ID())
		}
	}
	go func() { // a snapshot is read to its end, or the connection is of no more use
		if rpc.Reader != nil {
			_, _ = io.Copy(io.Discard, rpc.Reader)
		}
		rpc.Respond(nil, fmt.Errorf("%w: node %s hears nobody before it has joined", ErrForgotten, a.node.ID()))
	}()
}
