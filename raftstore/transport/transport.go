package transport

import "github.com/hashicorp/raft"

// Transport sends the messages of the Raft library to peers.
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// Sequential is a Transport without two optimizations of the Raft library. It also records
// the progress of the followers.
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
}

// AppendEntries sends entries, and records what the follower acknowledged.
func (s Sequential) AppendEntries(id raft.ServerID, target raft.ServerAddress, request *raft.AppendEntriesRequest, response *raft.AppendEntriesResponse) error {
	err := s.Transport.AppendEntries(id, target, request, response)
	if err == nil && response.Success {
		s.Progress.acknowledged(id, request)
	}
	return err
}

// SetHeartbeatHandler ignores the handler, so that heartbeats take the ordinary path.
func (Sequential) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline returns an error, so that the Raft library sends one request at a
// time.
func (Sequential) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}
