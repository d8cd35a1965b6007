package admin

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// votesMissing returns a message if fewer than a quorum of the Redis nodes vote, as this member saw them about a
// second ago, or if the log has not caught up with them. It returns "" if enough vote or there are no Redis nodes.
func (s *Service) votesMissing(ctx context.Context) string {
	topology := s.Router.Node.Topology()
	fleet := topology.Fleet
	switch {
	case fleet.IsZero():
		return ""
	case !topology.Ready:
		return "efficiency mode is not ready, see 'leased redis status'"
	}
	backend, err := s.Router.Redis.Backend()
	if err != nil {
		return fmt.Sprintf("fewer than %d of %d Redis nodes can be used, see 'leased redis status'", len(fleet.Addresses)/2+1,
			len(fleet.Addresses))
	}
	seen := backend.NodesSeen()
	if seen == nil { // it has connected a moment ago
		seen = backend.NodeStatuses(ctx)
	}
	return missingVotes(nodeStates(seen, topology))
}

// missingVotes returns a message if fewer than a quorum of the nodes vote, else "".
func missingVotes(nodes []*pb.RedisNode) string {
	votes := 0
	for _, n := range nodes {
		if n.Error == "" && !n.Empty && !n.Unnamed {
			votes++
		}
	}
	if quorum := len(nodes)/2 + 1; votes < quorum {
		return fmt.Sprintf("%d of %d Redis nodes vote, %d are needed", votes, len(nodes), quorum)
	}
	return ""
}

// nodeStates converts the states of nodes. The topology names the servers that vote.
func nodeStates(statuses []redlockadapter.NodeStatus, topology engine.Topology) []*pb.RedisNode {
	var nodes []*pb.RedisNode
	for _, n := range statuses {
		node := &pb.RedisNode{Address: n.Addr, Empty: n.Err == nil && n.Report.Live == nil,
			Quarantine: wire.DurationText(n.Quarantine),
			Skew:       wire.DurationText(n.Skew)}
		if n.Err != nil {
			node.Error = nodeError(n.Addr, n.Err)
		}
		if i := slices.Index(topology.Fleet.Addresses, n.Addr); i >= 0 && i < len(topology.Lives) {
			node.Unnamed = n.Report.Live != nil && n.Report.Life() != topology.Lives[i]
		}
		state := n.Report.Live
		if state == nil {
			state = n.Report.Former // the state that it had before it lost it
		}
		if state != nil {
			node.Version, node.Fleet = state.Version, state.Fleet
			node.Max, node.Floor, node.Ceiling = uint64(state.Max), uint64(state.Floor), uint64(state.Ceiling)
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// eachNodeState asks the nodes of a fleet one by one, so each has its own answer or error.
// It is for a fleet without a usable quorum.
func (s *Service) eachNodeState(ctx context.Context, fleet engine.Fleet) []*pb.RedisNode {
	nodes := make([]*pb.RedisNode, len(fleet.Addresses))
	var work sync.WaitGroup
	for i, address := range fleet.Addresses {
		work.Go(func() {
			single := engine.Fleet{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, Addresses: []string{address}}
			backend, err := s.connect(ctx, single)
			if err != nil {
				nodes[i] = &pb.RedisNode{Address: address, Error: nodeError(address, err)}
				return
			}
			defer func() { _ = backend.Close(ctx) }() // it holds no leases
			nodes[i] = nodeStates(backend.NodeStatuses(ctx), s.Router.Node.Topology())[0]
		})
	}
	work.Wait()
	return nodes
}

// connect connects to any fleet, to look at its nodes. It acquires no locks and
// recovers no nodes.
func (s *Service) connect(ctx context.Context, fleet engine.Fleet) (*redlockadapter.Backend, error) {
	config := s.Router.Redis.Config(fleet)
	config.Logger = slog.New(slog.DiscardHandler)
	config.Topology = func() engine.Topology { return engine.Topology{Fleet: fleet} }
	return redlockadapter.New(ctx, config)
}

// nodeError shortens the error of one node: the address is shown beside it, and
// remarks on the whole fleet do not matter.
func nodeError(address string, err error) string {
	text := oneLine(err)
	if _, own, found := strings.Cut(text, "see 'leased redis status': "); found {
		text = own
	}
	for _, known := range []string{address + ": ", address + ": ", "node is unreachable; ",
		"connect to " + address + ": "} {
		text = strings.TrimPrefix(text, known)
	}
	return text
}

// oneLine returns the text of an error in one line, also of joined errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
