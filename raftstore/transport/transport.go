package transport

import "github.com/hashicorp/raft"

// Transport is what the engine needs to reach its peers.
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// Sequential is a Transport without two shortcuts of the engine. It also records
// how far the followers are.
//
// The heartbeat fast path changes term and state outside the goroutine that owns
// them: a candidate that learns of a new leader that way, and then receives a
// late vote, leads too, in the same term, and two entries are committed at one
// index (hashicorp/raft 695). With Sequential, heartbeats take the ordinary path.
//
// Pipelined replication can hang for good after a rejection (612), and makes
// commits slower where there is batching. With Sequential, one request is in
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

// SetHeartbeatHandler does nothing.
func (Sequential) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline is refused; the engine then sends one request at a time.
func (Sequential) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}
