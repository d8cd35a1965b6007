package routing

import (
	"context"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// announceTimeout bounds one announcement.
	announceTimeout = 5 * time.Second
	// announceInterval is the time between two checks of the published address.
	announceInterval = 200 * time.Millisecond
)

// Announce publishes the API address of this member in the Raft log whenever the
// log has another one, until ctx ends. Each member thereby knows the addresses of
// all others, also after an election.
func (r *Router) Announce(ctx context.Context) {
	for {
		if node := r.Node; node.MemberAPI(node.ID()) != r.Address {
			_ = r.announce(ctx) // the next check tries again
		}
		if engine.Sleep(ctx, announceInterval) != nil {
			return
		}
	}
}

// announce records the address if this member leads, and otherwise asks the leader
// to record it.
func (r *Router) announce(ctx context.Context) error {
	id, own := r.Node.ID(), r.Address
	leader, err := r.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if leader == own {
		return r.Node.SetMemberAPI(ctx, id, own)
	}
	request := &pb.AnnounceRequest{Id: id, ApiAddress: own}
	return r.call(ctx, leader, pb.ClusterService_Announce_FullMethodName, request, &pb.AnnounceResponse{})
}
