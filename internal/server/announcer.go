package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// apiMark begins the prefix of a policy that only says where the API of a
	// member is: its id, a slash and the address follow. Policies are replicated
	// and last, so each member knows all addresses, also after an election.
	apiMark = reserved + "api/"
	// leadershipPause is how often a member looks whether it leads.
	leadershipPause = 20 * time.Millisecond
	// announceTime bounds one try to announce, announcePause is between two.
	announceTime  = 5 * time.Second
	announcePause = 200 * time.Millisecond
)

// announcer keeps the address of this member's API in the replicated state.
type announcer struct {
	server *Server
}

// run announces this member whenever the state does not have its address, until
// ctx ends.
func (a *announcer) run(ctx context.Context) {
	tick := time.NewTicker(announcePause)
	defer tick.Stop()
	for {
		if s := a.server; s.router.apiOf(s.config.Node.ID()) != s.address {
			_ = a.announce(ctx) // the next look tries again
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// announce writes the address if this member leads, and else asks the leader to.
func (a *announcer) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	s, id := a.server, a.server.config.Node.ID()
	if s.config.Node.Leads() {
		return s.router.setAPI(ctx, id, s.address)
	}
	leader := s.router.leaderAPI()
	if leader == "" {
		return lease.ErrUnavailable
	}
	return s.dial(leader, func(conn *grpc.ClientConn) error {
		_, err := pb.NewClusterServiceClient(conn).Announce(ctx, &pb.AnnounceRequest{Id: id, ApiAddress: s.address})
		return err
	})
}

// setAPI notes where the API of a member is, and forgets where it was. An empty
// address forgets only. It is for a leader only.
func (r *router) setAPI(ctx context.Context, id, address string) error {
	policies, version, err := r.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return err
	}
	set := []string{reserved} // no policy of an operator must decide about these names
	if address != "" {
		set = append(set, apiMark+id+"/"+address)
	}
	for _, prefix := range set {
		if hasPolicy(policies, prefix) {
			continue
		}
		if version, err = r.node.SetPolicy(ctx, lease.Policy{Prefix: prefix, Mode: lease.Correctness}, version); err != nil {
			return err
		}
	}
	for _, p := range policies.All() {
		if old := apiIn(p.Prefix, id); old != "" && old != address {
			if version, err = r.node.DeletePolicy(ctx, p.Prefix, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// apiIn is the address that a mark tells for a member, empty if it is no mark of
// it.
func apiIn(prefix, id string) string {
	address, ok := strings.CutPrefix(prefix, apiMark+id+"/")
	if !ok || strings.Contains(address, "/") { // another member, whose id has a slash
		return ""
	}
	return address
}

// apiOf is where the API of a member is, empty if this member does not know.
func (r *router) apiOf(id string) string {
	for _, p := range r.local().policies.All() {
		if address := apiIn(p.Prefix, id); address != "" {
			return address
		}
	}
	return ""
}

// leaderAPI is where the API of the leader is, empty if this member does not
// know.
func (r *router) leaderAPI() string {
	leader, _ := r.node.Leader()
	if leader == "" {
		return ""
	}
	return r.apiOf(leader)
}

// notLeader is the error of a member that does not lead.
func (s *Server) notLeader() error {
	return s.explain(&raftstore.NotLeaderError{Node: s.config.Node.ID()})
}

// explain gives the error of a member that does not lead the address that
// clients need.
func (s *Server) explain(err error) error {
	var not *raftstore.NotLeaderError
	if err == nil || !errors.As(err, &not) || errors.Is(err, lease.ErrUncertain) {
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
