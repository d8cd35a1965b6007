package raftstore

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/transport"
)

// admission rejects requests from the peers of a node until the node may answer them.
//
// A voter that lost its data folder has forgotten its votes and the entries that it
// acknowledged. If it answered its peers, they would count it as before, and two of
// three nodes could elect a leader that lacks a committed entry. The Raft library cannot
// distinguish such a node from a new one. So a node with an empty folder answers no
// peer until it has bootstrapped a cluster itself, or until a leader has committed,
// after the start of the node, that the node has no vote.
//
// A node that is alone in its cluster answers no peer either, because only that node
// could have admitted one. Otherwise a node that bootstrapped a new cluster on its
// emptied folder would follow its old cluster.
//
// See docs/adr/0013-empty-node-is-not-admitted.md.
type admission struct {
	transport.Transport
	node     *Node
	requests chan raft.RPC // nil if the transport calls admits itself
	stage    atomic.Int32
	refused  atomic.Int64                  // number of rejected requests
	counted  atomic.Bool                   // a peer requested a vote: it counts this node as a voter
	joining  atomic.Pointer[chan struct{}] // closed when the running join has an outcome; nil if none is running

	committed committedIndex // as leaders reported it
	newest    newestSnapshot
}

// Stages of an admission.
const (
	forgotten int32 = iota // the folder is empty
	alone                  // perhaps the only member
	admitted
)

// newAdmission determines the stage from the data folder. A term alone counts as empty:
// an interrupted Bootstrap leaves one. It refuses a folder with snapshots but without
// terms, which has lost its votes. A node that was catching up continues: it was admitted
// after its folder was empty.
func newAdmission(n *Node) (*admission, error) {
	a := &admission{Transport: n.transport, node: n, committed: committedIndex{opened: n.config.Clock.Now()}}
	if n.config.Transport != nil { // otherwise the node's own transport asks admitRequest
		a.requests = make(chan raft.RPC)
	}
	if err := n.storage.checkWentBack(); err != nil {
		return nil, err
	}
	term, err := n.storage.uint64(keyTerm)
	if err != nil {
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
			"empty the folder and join again", ErrStateLost)
	}
	return a, nil
}

// Consumer returns the channel with the admitted requests.
func (a *admission) Consumer() <-chan raft.RPC {
	if a.requests == nil {
		return a.Transport.Consumer()
	}
	return a.requests
}

// hasState reports whether the node still has its log and its votes.
func (a *admission) hasState() bool { return a.stage.Load() != forgotten }

// admit accepts requests from members.
func (a *admission) admit() { a.stage.CompareAndSwap(forgotten, alone) }

// follow accepts requests from all peers, even if this node appears to be alone.
func (a *admission) follow() { a.stage.Store(admitted) }

// joinTimeout is how long entries wait for the outcome of a join. It is less than a peer
// waits for an answer.
const joinTimeout = time.Second

// beginJoin lets entries wait until end is called.
func (a *admission) beginJoin() (end func()) {
	done := make(chan struct{})
	a.joining.Store(&done)
	return func() {
		a.joining.CompareAndSwap(&done, nil)
		close(done)
	}
}

// awaitJoin waits for the outcome of a join if there are entries for this node: the leader
// sends them as soon as the node is a member, perhaps before the node knows that it is. A
// refusal would say that the node has lost its votes.
func (a *admission) awaitJoin(rpc raft.RPC) {
	done := a.joining.Load()
	if _, entries := rpc.Command.(*raft.AppendEntriesRequest); done == nil || !entries || a.open() {
		return
	}
	timeout := time.NewTimer(joinTimeout)
	defer timeout.Stop()
	select {
	case <-*done:
	case <-timeout.C:
	case <-a.node.stopped:
	}
}

// run forwards the requests of a transport that does not call admits, until the node stops.
func (a *admission) run() {
	if a.requests == nil {
		return
	}
	for {
		select {
		case rpc := <-a.Transport.Consumer():
			if !a.admits(rpc) {
				continue
			}
			select {
			case a.requests <- rpc:
			case <-a.node.stopped:
				return
			}
		case <-a.node.stopped:
			return
		}
	}
}

// admitRequest is admits for a transport that may receive requests before the node has started.
func (n *Node) admitRequest(rpc raft.RPC) bool {
	select {
	case <-n.started:
		return n.admission.admits(rpc)
	case <-n.stopped:
		reject(rpc, ErrStopped)
		return false
	}
}

// admits reports whether the Raft library may see a request. It answers those that it may not.
func (a *admission) admits(rpc raft.RPC) bool {
	if err := a.node.catchUp.finish(); err != nil {
		a.node.logger.Error("cannot finish catching up", "error", err)
	}
	a.awaitJoin(rpc)
	if !a.open() {
		a.refuse(rpc)
		return false
	}
	if err := a.node.memory.Check(rpc.Command); err != nil {
		reject(rpc, err)
		return false
	}
	if request, ok := rpc.Command.(*raft.RequestPreVoteRequest); ok && a.node.confirms(request) {
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
			Term: request.Term, Granted: true}, nil)
		return false
	}
	if request, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && a.node.contains(request) {
		_, _ = io.Copy(io.Discard, rpc.Reader) // the leader sends all of it before it reads the response
		rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
			Term: max(request.Term, a.node.raft.CurrentTerm()), Success: true}, nil)
		return false
	}
	if err := a.newest.check(rpc.Command); err != nil {
		if request, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
			// A leader that still waits for the answer tries older entries, and then its newest snapshot. After an error it
			// would repeat these.
			rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
				Term: max(request.Term, a.node.raft.CurrentTerm()), LastLog: a.node.raft.LastIndex(), NoRetryBackoff: true}, nil)
		} else {
			reject(rpc, err)
		}
		return false
	}
	// An answer acknowledges them.
	if _, entries := rpc.Command.(*raft.AppendEntriesRequest); entries && a.node.log.Drain() != nil {
		reject(rpc, ErrStopped)
		return false
	}
	a.committed.observe(rpc.Command, a.node.config.Clock.Now())
	a.node.followed.observe(rpc.Command)
	return true
}

// contains reports whether this node already has every entry that a snapshot covers, because the snapshot was delayed.
// The Raft library would install it and revert to the configuration in it: a node promoted in the meantime would not
// know that it is a voter. With a copy of its newest snapshot, it would delete entries behind it that it has
// acknowledged.
//
// A leader that is deposed while it restores a saved snapshot is left with a state that did not come from the log, with
// no entry at its index. It has to install the snapshot of its successor, even an older one. That lasts until it
// restarts: docs/OPERATIONS.md tells the operator to empty its folder.
func (n *Node) contains(snapshot *raft.InstallSnapshotRequest) bool {
	if index, term := n.lastSnapshot(); index == snapshot.LastLogIndex && term == snapshot.LastLogTerm {
		return true
	}
	var entry raft.Log
	applied := n.raft.AppliedIndex()
	if n.log.GetLog(applied, &entry) != nil {
		return false
	}
	return snapshot.LastLogIndex < applied ||
		n.log.GetLog(snapshot.LastLogIndex, &entry) == nil && entry.Term == snapshot.LastLogTerm
}

// open reports whether requests are accepted.
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
			a.node.logger.Warn("peers count this node as a voter, but it does not vote: it has lost its data folder, or "+
				"bootstrapped another cluster; "+
				"remove it from their cluster, empty its folder and join again", "id", a.node.ID())
		}
	}
	reject(rpc, fmt.Errorf("%w: node %s rejects requests before it has joined", ErrStateLost, a.node.ID()))
}

// reject answers a request with an error. It reads a snapshot to its end, or the
// connection becomes unusable.
func reject(rpc raft.RPC, err error) {
	go func() {
		if rpc.Reader != nil {
			_, _ = io.Copy(io.Discard, rpc.Reader)
		}
		rpc.Respond(nil, err)
	}()
}
