package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// joinTime bounds how long a member may take to catch up.
const joinTime = 5 * time.Minute

// admin is leased.v1.PolicyService, RedisService and ClusterService.
type admin struct {
	pb.UnimplementedPolicyServiceServer
	pb.UnimplementedRedisServiceServer
	pb.UnimplementedClusterServiceServer
	*Server
	voting voting
}

// Status returns how this member is doing.
func (a *admin) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	s := a.router.node.Status()
	leaderAPI := a.router.leaderAPI()
	response := &pb.StatusResponse{Id: s.ID, RaftAddress: s.Address, ApiAddress: a.address, State: s.State, Serves: s.Serves,
		Leader: s.Leader, LeaderApiAddress: leaderAPI, Term: s.Term, Generation: s.Generation, LastIndex: s.LastIndex,
		CommitIndex: s.Commit, AppliedIndex: s.Applied, ChainIndex: s.Chain.Index, ChainHash: s.Chain.String(),
		LastToken: uint64(s.LastToken), Sessions: int64(s.Counts.Sessions), Locks: int64(s.Counts.Locks),
		Holders: int64(s.Counts.Holders), Waiters: int64(s.Counts.Waiters), Version: a.config.Version}
	for _, m := range s.Members {
		member := &pb.Member{Id: m.ID, RaftAddress: m.Address, Voter: m.Voter, Leader: m.ID == s.Leader}
		if m.LagKnown {
			member.Lag = &m.Lag
		}
		if member.ApiAddress = a.router.node.MemberAPI(m.ID); m.ID == s.ID {
			member.ApiAddress = a.address
		}
		response.Members = append(response.Members, member)
	}
	if backend, err := a.router.redis.Backend(); err == nil {
		response.Redis = redisNodes(ctx, backend)
	}
	return response, nil
}

// healthy returns why the service cannot be used through this member, "" if it
// can. limited says why locks in correctness mode cannot.
func (s *Server) healthy() (reason, limited string) {
	if err := s.config.Node.Failure(); err != nil {
		return err.Error(), ""
	}
	if s.config.Node.Leads() {
		return "", ""
	}
	leader, _ := s.config.Node.Leader()
	switch {
	case leader == "":
		limited = "no leader is known; are a majority of the members up and connected?"
	case s.router.leaderAPI() == "":
		limited = "member " + leader + " leads, and has not announced the address of its API yet"
	}
	if topology := s.config.Node.Topology(); limited == "" || topology.Ready && !topology.Fleet.IsZero() {
		if _, err := s.router.redis.Backend(); limited == "" || err == nil {
			return "", limited
		}
	}
	return limited, limited
}

// Health reports whether the service can be used through this member. Without a
// leader, a member that reaches the Redis nodes serves locks in efficiency mode.
func (a *admin) Health(ctx context.Context, _ *pb.HealthRequest) (*pb.HealthResponse, error) {
	response := &pb.HealthResponse{Status: "serving", Leader: a.router.leaderAPI()}
	reason, limited := a.healthy()
	missing := ""
	if reason == "" {
		missing = a.votesMissing(ctx)
	}
	switch {
	case reason != "":
		response.Status, response.Reason = "not-serving", reason
	case limited != "" && missing != "":
		response.Status, response.Reason = "not-serving", limited+"; "+missing
	case limited != "":
		response.Reason = "locks in efficiency mode only: " + limited
	case missing != "":
		response.Reason = "locks in correctness mode only: " + missing
	}
	return response, nil
}

// AddLearner makes a node receive the log without a vote.
func (a *admin) AddLearner(ctx context.Context, r *pb.AddLearnerRequest) (*pb.AddLearnerResponse, error) {
	if r.Id == "" || r.RaftAddress == "" {
		return nil, fmt.Errorf("%w: a member that joins has an id and a raftAddress", engine.ErrInvalid)
	}
	if r.ApiAddress != "" {
		if err := checkAPI(r.ApiAddress); err != nil {
			return nil, err
		}
	}
	index, err := a.router.node.AddLearner(ctx, raftstore.Joiner{ID: r.Id, Address: r.RaftAddress, Remembers: r.Remembers})
	if err != nil {
		return nil, err
	}
	if r.ApiAddress != "" {
		_ = a.router.node.SetMemberAPI(ctx, r.Id, r.ApiAddress) // else it announces itself
	}
	return &pb.AddLearnerResponse{Index: index}, nil
}

// Announce records the address of a member's API.
func (a *admin) Announce(ctx context.Context, r *pb.AnnounceRequest) (*pb.AnnounceResponse, error) {
	if err := a.knownMember(r.Id); err != nil {
		return nil, err
	}
	if err := checkAPI(r.ApiAddress); err != nil {
		return nil, err
	}
	if err := a.router.node.SetMemberAPI(ctx, r.Id, r.ApiAddress); err != nil {
		return nil, err
	}
	return &pb.AnnounceResponse{}, nil
}

// checkAPI refuses an address that is not host:port.
func checkAPI(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil || strings.Contains(address, "/") {
		return fmt.Errorf("%w: apiAddress (%s) must be host:port", engine.ErrInvalid, address)
	}
	return nil
}

// Promote gives a learner a vote.
func (a *admin) Promote(ctx context.Context, r *pb.PromoteRequest) (*pb.PromoteResponse, error) {
	err := a.router.node.Promote(ctx, r.Id, r.Applied)
	if errors.Is(err, raftstore.ErrBehind) {
		err = fmt.Errorf("%w: %w", wire.ErrBehind, err)
	}
	if err != nil {
		return nil, err
	}
	return &pb.PromoteResponse{}, nil
}

// Join makes this member join the cluster of another.
func (a *admin) Join(ctx context.Context, r *pb.JoinRequest) (*pb.JoinResponse, error) {
	if r.Address == "" {
		return nil, fmt.Errorf("%w: join needs the address of the API of a member", engine.ErrInvalid)
	}
	if members := a.router.node.Members(); len(members) > 0 && a.knownMember(a.router.node.ID()) == nil {
		return nil, fmt.Errorf("%w: member %s belongs to a cluster of %d already; only a new member can join one",
			engine.ErrInvalid, a.router.node.ID(), len(members))
	}
	if err := a.reach(ctx, r.Address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if err := a.Server.Join(ctx, r.Address); err != nil {
		return nil, err
	}
	return &pb.JoinResponse{}, nil
}

// Remove takes a member out of the cluster.
func (a *admin) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	if err := a.knownMember(r.Id); err != nil {
		return nil, err
	}
	if a.voters(r.Id) == 0 {
		return nil, fmt.Errorf("%w: %s is the only member that votes; without it there is no cluster", engine.ErrInvalid, r.Id)
	}
	if err := a.router.node.Remove(ctx, r.Id); err != nil {
		return nil, err
	}
	_ = a.router.node.SetMemberAPI(ctx, r.Id, "") // it is not needed any more
	return &pb.RemoveResponse{}, nil
}

func (a *admin) knownMember(id string) error {
	for _, m := range a.router.node.Members() {
		if m.ID == id {
			return nil
		}
	}
	return fmt.Errorf("%w: there is no member %q; Status lists them", engine.ErrInvalid, id)
}

// voters returns how many members vote, without one of them.
func (a *admin) voters(but string) (n int) {
	for _, m := range a.router.node.Members() {
		if m.Voter && m.ID != but {
			n++
		}
	}
	return n
}

// Transfer hands leadership over.
func (a *admin) Transfer(ctx context.Context, r *pb.TransferRequest) (*pb.TransferResponse, error) {
	if a.voters(a.router.node.ID()) == 0 { // the engine would stop leading to find out
		return nil, fmt.Errorf("%w: there is no other member that votes, so nobody can take over", engine.ErrInvalid)
	}
	if r.To != "" {
		if err := a.knownMember(r.To); err != nil {
			return nil, err
		}
	}
	if r.To == a.router.node.ID() && a.router.node.Leads() {
		return &pb.TransferResponse{}, nil
	}
	if err := a.router.node.Transfer(ctx, r.To); err != nil {
		return nil, err
	}
	return &pb.TransferResponse{}, nil
}
