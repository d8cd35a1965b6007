package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// leadershipPause is how often a member looks for a leader.
	leadershipPause = 20 * time.Millisecond
	// announceTime bounds one attempt to announce, announcePause is between two.
	announceTime  = 5 * time.Second
	announcePause = 200 * time.Millisecond
)

// announcer keeps the address of this member's API in the replicated state, so
// that each member knows all addresses, also after an election.
type announcer struct {
	server *Server
}

// run announces this member whenever the state does not have its address, until
// ctx ends.
func (a *announcer) run(ctx context.Context) {
	tick := time.NewTicker(announcePause)
	defer tick.Stop()
	for {
		if s := a.server; s.config.Node.MemberAPI(s.config.Node.ID()) != s.address {
			_ = a.announce(ctx) // the next look tries again
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// announce records the address if this member leads, and else asks the leader to.
func (a *announcer) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	s, id := a.server, a.server.config.Node.ID()
	if s.config.Node.Leads() {
		return s.config.Node.SetMemberAPI(ctx, id, s.address)
	}
	leader := s.router.leaderAPI()
	if leader == "" {
		return engine.ErrUnavailable
	}
	return s.dial(leader, func(conn *grpc.ClientConn) error {
		_, err := pb.NewClusterServiceClient(conn).Announce(ctx, &pb.AnnounceRequest{Id: id, ApiAddress: s.address})
		return err
	})
}

// leaderAPI returns the address of the leader's API, "" if this member does not
// know it.
func (r *router) leaderAPI() string {
	leader, _ := r.node.Leader()
	if leader == "" {
		return ""
	}
	return r.node.MemberAPI(leader)
}

// notLeader returns the error of a member that does not lead.
func (s *Server) notLeader() error {
	return s.explain(&raftstore.NotLeaderError{Node: s.config.Node.ID()})
}

// explain adds the leader's address to the error of a member that does not lead.
func (s *Server) explain(err error) error {
	var not *raftstore.NotLeaderError
	if err == nil || !errors.As(err, &not) || errors.Is(err, engine.ErrUncertain) {
		return err
	}
	leader := s.router.leaderAPI()
	if leader == s.address {
		leader = ""
	}
	text := "member " + s.config.Node.ID() + " does not lead, and knows no leader"
	if leader != "" {
		text = "member " + s.config.Node.ID() + " does not lead; the leader's API is at " + leader
	}
	return &wire.NotLeaderError{Leader: leader, Text: text}
}
