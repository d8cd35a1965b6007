package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/transport"
)

// joinTimeout bounds the time that a joining member needs to catch up.
const joinTimeout = 5 * time.Minute

// AddLearner makes a node receive the log without a vote.
func (s *Service) AddLearner(ctx context.Context, r *pb.AddLearnerRequest) (*pb.AddLearnerResponse, error) {
	if r.Id == "" || r.RaftAddress == "" {
		return nil, fmt.Errorf("%w: add learner: a joining member needs id and raftAddress", engine.ErrInvalid)
	}
	if err := checkCaller(ctx, r.Id); err != nil {
		return nil, err
	}
	if r.ApiAddress != "" {
		if err := checkAddress(r.ApiAddress); err != nil {
			return nil, err
		}
	}
	index, err := s.Router.Node.AddLearner(ctx, raftstore.Joiner{ID: r.Id, Address: r.RaftAddress, HasState: r.HasState})
	if err != nil {
		return nil, err
	}
	if r.ApiAddress != "" {
		_ = s.Router.Node.SetMemberAPI(ctx, r.Id, r.ApiAddress) // otherwise the member announces it
	}
	return &pb.AddLearnerResponse{Index: index}, nil
}

// Announce records the API address of a member.
func (s *Service) Announce(ctx context.Context, r *pb.AnnounceRequest) (*pb.AnnounceResponse, error) {
	if err := checkCaller(ctx, r.Id); err != nil {
		return nil, err
	}
	if err := s.checkMember(r.Id); err != nil {
		return nil, err
	}
	if err := checkAddress(r.ApiAddress); err != nil {
		return nil, err
	}
	return &pb.AnnounceResponse{}, s.Router.Node.SetMemberAPI(ctx, r.Id, r.ApiAddress)
}

// checkAddress returns an error for an API address that is not host:port.
func checkAddress(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil || strings.Contains(address, "/") {
		return fmt.Errorf("%w: apiAddress (%s) must be host:port", engine.ErrInvalid, address)
	}
	return nil
}

// Promote gives a learner a vote.
func (s *Service) Promote(ctx context.Context, r *pb.PromoteRequest) (*pb.PromoteResponse, error) {
	if err := checkCaller(ctx, r.Id); err != nil {
		return nil, err
	}
	err := s.Router.Node.Promote(ctx, r.Id, r.Applied)
	if errors.Is(err, raftstore.ErrBehind) {
		err = fmt.Errorf("%w: %w", wire.ErrBehind, err)
	}
	return &pb.PromoteResponse{}, err
}

// Join makes this member join the cluster of another.
func (s *Service) Join(ctx context.Context, r *pb.JoinRequest) (*pb.JoinResponse, error) {
	if r.Address == "" {
		return nil, fmt.Errorf("%w: join needs the API address of a member", engine.ErrInvalid)
	}
	if members := s.Router.Node.Members(); len(members) > 0 && s.checkMember(s.Router.Node.ID()) == nil {
		return nil, fmt.Errorf("%w: member %s already belongs to a cluster of %d; only a new member can join one",
			engine.ErrInvalid, s.Router.Node.ID(), len(members))
	}
	if err := s.Router.Ping(ctx, r.Address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	return &pb.JoinResponse{}, s.Router.Join(ctx, r.Address)
}

// Remove removes a member from the cluster.
func (s *Service) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	if err := s.checkMember(r.Id); err != nil {
		return nil, err
	}
	if s.voters(r.Id) == 0 {
		return nil, fmt.Errorf("%w: remove %s: it is the only voter of the cluster", engine.ErrInvalid, r.Id)
	}
	if err := s.Router.Node.Remove(ctx, r.Id); err != nil {
		return nil, err
	}
	_ = s.Router.Node.SetMemberAPI(ctx, r.Id, "") // an address that stays does no harm
	return &pb.RemoveResponse{}, nil
}

// checkMember returns an error if there is no member with this id.
func (s *Service) checkMember(id string) error {
	if slices.ContainsFunc(s.Router.Node.Members(), func(m raftstore.Member) bool { return m.ID == id }) {
		return nil
	}
	return fmt.Errorf("%w: there is no member %q; Status lists the members", engine.ErrInvalid, id)
}

// voters returns the number of voters other than one member.
func (s *Service) voters(except string) (n int) {
	for _, m := range s.Router.Node.Members() {
		if m.Voter && m.ID != except {
			n++
		}
	}
	return n
}

// Transfer transfers the leadership to another member.
func (s *Service) Transfer(ctx context.Context, r *pb.TransferRequest) (*pb.TransferResponse, error) {
	if s.voters(s.Router.Node.ID()) == 0 { // Raft would step down before it finds out
		return nil, fmt.Errorf("%w: transfer leadership: there is no other voter", engine.ErrInvalid)
	}
	if r.To != "" {
		if err := s.checkMember(r.To); err != nil {
			return nil, err
		}
	}
	if r.To == s.Router.Node.ID() && s.Router.Node.Leads() {
		return &pb.TransferResponse{}, nil
	}
	return &pb.TransferResponse{}, s.Router.Node.Transfer(ctx, r.To)
}

// checkCaller refuses a call that only a member makes for itself, if the caller presented
// a certificate that does not name the member. For a caller without certificate, only the
// rights of its user count. A follower that forwards such a call over HTTP presents its
// own certificate, so the call must go to the leader; members use gRPC and do that.
func checkCaller(ctx context.Context, id string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	secure, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(secure.State.VerifiedChains) == 0 {
		return nil
	}
	leaf := secure.State.VerifiedChains[0][0]
	if transport.Names(leaf, id) {
		return nil
	}
	return fmt.Errorf("%w: a call of member %q came with a certificate (%s) that names the members %q; use a "+
		"certificate with the URI %s",
		engine.ErrForbidden, id, leaf.Subject, transport.MemberIDs(leaf), transport.MemberURI(id))
}
