package transport

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Transport sends the messages of the Raft library to peers.
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// Sequential is a Transport without two optimizations of the Raft library. It also records
// the progress of the followers, and refuses voters that have lost entries.
//
// The heartbeat fast path changes term and state outside the goroutine that owns
// them. A candidate that learns of a new leader that way, and then receives a late
// vote, becomes a second leader in the same term, and two entries are committed at one
// index (hashicorp/raft 695). With Sequential, heartbeats take the ordinary path.
//
// Pipelined replication can hang forever after a rejection (612), and makes commits
// slower when they are batched. With Sequential, one request is in
// flight to each follower.
type Sequential struct {
	Transport
	Progress *Progress
	Memory   *Memory
	// Durable waits until an entry is on the disk of this node. An acknowledgement is
	// withheld until then. It returns an error if the node stops before.
	Durable func(index uint64) error
}

// SnapshotEnd is the type of an entry that stands for the end of a snapshot in the log of a follower. It has no
// contents, so Sequential does not send it: the goroutines of a leader run on for a moment after it has stepped down.
const SnapshotEnd raft.LogType = 255

// AppendEntries sends entries, and records what the follower acknowledged.
func (s Sequential) AppendEntries(id raft.ServerID, target raft.ServerAddress, request *raft.AppendEntriesRequest,
	response *raft.AppendEntriesResponse) error {
	if slices.ContainsFunc(request.Entries, func(l *raft.Log) bool { return l.Type == SnapshotEnd }) {
		return raft.ErrLogNotFound
	}
	e, err := s.Memory.expect(id, request.Term)
	if err != nil {
		return err
	}
	if err := s.Transport.AppendEntries(id, target, request, response); err != nil {
		return s.Memory.reported(id, err)
	}
	s.Progress.answered(id)
	if err := s.Memory.answered(id, e, request, response); err != nil {
		return err
	}
	if n := len(request.Entries); n > 0 && response.Success {
		if err := s.Durable(request.Entries[n-1].Index); err != nil {
			return err
		}
	}
	if response.Success {
		s.Progress.acknowledged(id, request)
	}
	return nil
}

// RequestVote asks for a vote, unless the voter is refused.
func (s Sequential) RequestVote(id raft.ServerID, target raft.ServerAddress, request *raft.RequestVoteRequest,
	response *raft.RequestVoteResponse) error {
	if _, err := s.Memory.expect(id, request.Term); err != nil {
		return err
	}
	return s.Memory.reported(id, s.Transport.RequestVote(id, target, request, response))
}

// RequestPreVote asks for a pre-vote, unless the voter is refused.
func (s Sequential) RequestPreVote(id raft.ServerID, target raft.ServerAddress, request *raft.RequestPreVoteRequest,
	response *raft.RequestPreVoteResponse) error {
	if _, err := s.Memory.expect(id, request.Term); err != nil {
		return err
	}
	return s.Memory.reported(id, s.Transport.RequestPreVote(id, target, request, response))
}

// InstallSnapshot sends a snapshot, unless the voter is refused.
func (s Sequential) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, request *raft.InstallSnapshotRequest,
	response *raft.InstallSnapshotResponse, data io.Reader) error {
	if _, err := s.Memory.expect(id, request.Term); err != nil {
		return err
	}
	return s.Memory.reported(id, s.Transport.InstallSnapshot(id, target, request, response, data))
}

// handoverLimit bounds TimeoutNow. The Raft library refuses entries until the call returns, even
// after it has given up the transfer.
const handoverLimit = time.Second

// TimeoutNow makes a member start an election, and waits for its answer until handoverLimit. A
// request that arrives later has the effect of any late request.
func (s Sequential) TimeoutNow(id raft.ServerID, target raft.ServerAddress, request *raft.TimeoutNowRequest,
	response *raft.TimeoutNowResponse) error {
	var answer raft.TimeoutNowResponse
	done := make(chan error, 1)
	go func() { done <- s.Transport.TimeoutNow(id, target, request, &answer) }()
	limit := time.NewTimer(handoverLimit)
	defer limit.Stop()
	select {
	case err := <-done:
		if err == nil {
			*response = answer
		}
		return err
	case <-limit.C:
		return fmt.Errorf("hand over to member %s: no answer within %v", id, handoverLimit)
	}
}

// SetHeartbeatHandler ignores the handler, so that heartbeats take the ordinary path.
func (Sequential) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline returns an error, so that the Raft library sends one request at a
// time.
func (Sequential) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}
