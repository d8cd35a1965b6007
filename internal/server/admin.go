package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// joinTime bounds how long a member may take to catch up.
const joinTime = 5 * time.Minute

// admin is leased.v1.PolicyService and leased.v1.ClusterService.
type admin struct {
	pb.UnimplementedPolicyServiceServer
	pb.UnimplementedClusterServiceServer
	*Server
	mover *mover
}

// SetPolicy adds or replaces a policy.
func (a *admin) SetPolicy(ctx context.Context, r *pb.SetPolicyRequest) (*pb.SetPolicyResponse, error) {
	if r.Policy == nil {
		return nil, fmt.Errorf("%w: there is no policy", lease.ErrInvalid)
	}
	p, err := wire.ToPolicy(r.Policy)
	if err != nil {
		return nil, err
	}
	version, err := a.mover.set(ctx, p, r.Version)
	if err != nil {
		return nil, err
	}
	return &pb.SetPolicyResponse{Version: version}, nil
}

// SetPolicy adds or replaces a policy, by order of this member itself.
func (s *Server) SetPolicy(ctx context.Context, p lease.Policy) error {
	_, err := s.admin.SetPolicy(ctx, &pb.SetPolicyRequest{Policy: wire.FromPolicy(p)})
	return s.explain(err)
}

// DeletePolicy removes a policy.
func (a *admin) DeletePolicy(ctx context.Context, r *pb.DeletePolicyRequest) (*pb.DeletePolicyResponse, error) {
	version, err := a.mover.delete(ctx, r.Prefix, r.Version)
	if err != nil {
		return nil, err
	}
	return &pb.DeletePolicyResponse{Version: version}, nil
}

// ListPolicies tells all policies.
func (a *admin) ListPolicies(ctx context.Context, _ *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	policies, version, err := a.router.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return nil, err
	}
	response := &pb.ListPoliciesResponse{Version: version}
	for _, p := range policies.All() {
		if prefix, ok := strings.CutPrefix(p.Prefix, movingMark); ok {
			response.Moving = append(response.Moving, prefix)
		} else if !strings.HasPrefix(p.Prefix, reserved) {
			response.Policies = append(response.Policies, wire.FromPolicy(p))
		}
	}
	return response, nil
}

// Status tells how this member is doing.
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
		if member.ApiAddress = a.router.apiOf(m.ID); m.ID == s.ID {
			member.ApiAddress = a.address
		}
		response.Members = append(response.Members, member)
	}
	if a.config.Redis == nil {
		return response, nil
	}
	for _, n := range a.config.Redis.NodeStatuses(ctx) {
		node := &pb.RedisNode{Address: n.Addr, Empty: n.Empty, Restarted: n.Restarted, Quarantine: wire.DurationText(n.Quarantine), Epoch: n.Epoch,
			Max: uint64(n.Max), Floor: uint64(n.Floor), Skew: wire.DurationText(n.Skew)}
		if n.Err != nil {
			node.Error = n.Err.Error()
		}
		response.Redis = append(response.Redis, node)
	}
	return response, nil
}

// healthy is empty if the service can be used through this member, else why not.
func (s *Server) healthy() string {
	if err := s.config.Node.Failure(); err != nil {
		return err.Error()
	}
	if s.config.Node.Leads() {
		return ""
	}
	leader, _ := s.config.Node.Leader()
	switch {
	case leader == "":
		return "no leader is known; are a majority of the members up and connected?"
	case s.router.leaderAPI() == "":
		return "member " + leader + " leads, and has not told the address of its API yet"
	}
	return ""
}

// Health tells whether the service can be used through this member.
func (a *admin) Health(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error) {
	response := &pb.HealthResponse{Status: "serving", Leader: a.router.leaderAPI()}
	if why := a.healthy(); why != "" {
		response.Status, response.Reason = "not-serving", why
	}
	return response, nil
}

// AddLearner makes a node receive the log without a vote.
func (a *admin) AddLearner(ctx context.Context, r *pb.AddLearnerRequest) (*pb.AddLearnerResponse, error) {
	if r.Id == "" || r.RaftAddress == "" {
		return nil, fmt.Errorf("%w: a member that joins has an id and a raftAddress", lease.ErrInvalid)
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
	_ = a.router.setAPI(ctx, r.Id, r.ApiAddress) // else it announces itself
	return &pb.AddLearnerResponse{Index: index}, nil
}

// Announce notes where the API of a member is.
func (a *admin) Announce(ctx context.Context, r *pb.AnnounceRequest) (*pb.AnnounceResponse, error) {
	if err := a.knownMember(r.Id); err != nil {
		return nil, err
	}
	if err := checkAPI(r.ApiAddress); err != nil {
		return nil, err
	}
	if err := a.router.setAPI(ctx, r.Id, r.ApiAddress); err != nil {
		return nil, err
	}
	return &pb.AnnounceResponse{}, nil
}

// checkAPI refuses what is no address of an API.
func checkAPI(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil || strings.Contains(address, "/") {
		return fmt.Errorf("%w: apiAddress (%s) must be host:port", lease.ErrInvalid, address)
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
		return nil, fmt.Errorf("%w: join needs the address of the API of a member", lease.ErrInvalid)
	}
	if members := a.router.node.Members(); len(members) > 0 && a.knownMember(a.router.node.ID()) == nil {
		return nil, fmt.Errorf("%w: member %s belongs to a cluster of %d already; only a new member can join one",
			lease.ErrInvalid, a.router.node.ID(), len(members))
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
		return nil, fmt.Errorf("%w: %s is the only member that votes; without it there is no cluster", lease.ErrInvalid, r.Id)
	}
	if err := a.router.node.Remove(ctx, r.Id); err != nil {
		return nil, err
	}
	_ = a.router.setAPI(ctx, r.Id, "") // nobody asks for it any more
	return &pb.RemoveResponse{}, nil
}

func (a *admin) knownMember(id string) error {
	for _, m := range a.router.node.Members() {
		if m.ID == id {
			return nil
		}
	}
	return fmt.Errorf("%w: there is no member %q; Status lists them", lease.ErrInvalid, id)
}

// voters is how many members vote, but for one.
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
		return nil, fmt.Errorf("%w: there is no other member that votes, so nobody can take over", lease.ErrInvalid)
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
