package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// joinPause is the time between two tries to reach the leader.
	joinPause = 200 * time.Millisecond
	// reachTime bounds the time until a member answers at all.
	reachTime = 5 * time.Second
)

// Join brings this member, whose node is new, into the cluster that the API at
// one of these addresses belongs to. It tries until ctx ends, while none of them
// can be reached or they have no leader.
func (s *Server) Join(ctx context.Context, addresses ...string) error {
	p := &peers{server: s, seeds: addresses}
	return s.config.Node.Join(ctx, p)
}

// reach fails if no member answers at an address.
func (s *Server) reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	err := s.dial(address, func(conn *grpc.ClientConn) error {
		_, err := pb.NewClusterServiceClient(conn).Health(ctx, &pb.HealthRequest{})
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: no member answers at %s: %w", engine.ErrUnavailable, address, err)
	}
	return nil
}

// peers is a raftstore.Membership over the API of other members: the way to the
// leader.
type peers struct {
	server *Server
	seeds  []string
	leader string
}

var _ raftstore.Membership = (*peers)(nil)

// AddLearner asks the leader.
func (p *peers) AddLearner(ctx context.Context, j raftstore.Joiner) (index uint64, err error) {
	err = p.ask(ctx, func(c pb.ClusterServiceClient) error {
		response, err := c.AddLearner(ctx, &pb.AddLearnerRequest{Id: j.ID, RaftAddress: j.Address, ApiAddress: p.server.address, Remembers: j.Remembers})
		index = response.GetIndex()
		return err
	})
	return index, err
}

// Promote asks the leader.
func (p *peers) Promote(ctx context.Context, id string, applied uint64) error {
	err := p.ask(ctx, func(c pb.ClusterServiceClient) error {
		_, err := c.Promote(ctx, &pb.PromoteRequest{Id: id, Applied: applied})
		return err
	})
	if errors.Is(err, wire.ErrBehind) {
		return fmt.Errorf("%w: %w", raftstore.ErrBehind, err)
	}
	return err
}

// Remove asks the leader. A member that is gone already counts as removed.
func (p *peers) Remove(ctx context.Context, id string) error {
	return p.ask(ctx, func(c pb.ClusterServiceClient) error {
		_, err := c.Remove(ctx, &pb.RemoveRequest{Id: id})
		return err
	})
}

// ask tries the leader that was named last, else the seeds, until one answers.
// All calls may be repeated.
func (p *peers) ask(ctx context.Context, call func(pb.ClusterServiceClient) error) error {
	for n := 0; ; n++ {
		address := p.leader
		if address == "" {
			address = p.seeds[n%len(p.seeds)]
		}
		err := p.server.dial(address, func(conn *grpc.ClientConn) error {
			return wire.FromStatus(call(pb.NewClusterServiceClient(conn)))
		})
		var not *wire.NotLeaderError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &not):
			p.leader = not.Leader
		case errors.Is(err, wire.ErrUnauthenticated):
			return fmt.Errorf("%s: %w; is secret-file that of a user of all members?", address, err)
		case errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain):
			p.leader = ""
		default:
			return err
		}
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %w", context.Cause(ctx), address, err)
		}
	}
}

// dial connects to the API of another member.
func (s *Server) dial(address string, use func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(s.config.PeerTLS(), s.config.Secret())...)
	if err != nil {
		return fmt.Errorf("reach %s: %w", address, err)
	}
	defer conn.Close()
	return use(conn)
}
