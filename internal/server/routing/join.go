package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// joinRetryInterval is the time between two calls to the members of the cluster
// that this member joins.
const joinRetryInterval = 200 * time.Millisecond

// joinCallTimeout bounds one call to a member of that cluster: a member that hangs must not keep this one from the
// others. It is longer than an election and a change of the members.
const joinCallTimeout = 10 * time.Second

// Join makes this member, whose node is new, join the cluster of the members at
// these API addresses. It retries until ctx ends while no member can be reached or
// the cluster has no leader.
func (r *Router) Join(ctx context.Context, addresses ...string) error {
	return r.Node.Join(ctx, &membership{router: r, seeds: addresses, timeout: joinCallTimeout})
}

// membership is a raftstore.Membership that calls the leader of another cluster. It finds
// the leader by the addresses in not-leader errors: this member is not in that cluster yet,
// so its node does not know the leader.
type membership struct {
	router  *Router
	seeds   []string
	leader  string
	timeout time.Duration // of one call
}

var _ raftstore.Membership = (*membership)(nil)

func (m *membership) AddLearner(ctx context.Context, j raftstore.Joiner) (index uint64, err error) {
	request := &pb.AddLearnerRequest{Id: j.ID, RaftAddress: j.Address, ApiAddress: m.router.Address, HasState: j.HasState}
	response := &pb.AddLearnerResponse{}
	err = m.call(ctx, pb.ClusterService_AddLearner_FullMethodName, request, response)
	return response.Index, err
}

func (m *membership) Promote(ctx context.Context, id string, applied uint64) error {
	request := &pb.PromoteRequest{Id: id, Applied: applied}
	err := m.call(ctx, pb.ClusterService_Promote_FullMethodName, request, &pb.PromoteResponse{})
	if errors.Is(err, wire.ErrBehind) {
		return fmt.Errorf("%w: %w", raftstore.ErrBehind, err)
	}
	return err
}

// call calls the leader that was named last, or the seeds in turn, until one
// answers or ctx ends. All calls are idempotent.
func (m *membership) call(ctx context.Context, method string, request, response proto.Message) error {
	rejected := 0 // refusals of the user since the last answer; some members may know it already
	for n := 0; ; n++ {
		address := m.leader
		if address == "" {
			address = m.seeds[n%len(m.seeds)]
		}
		limited, cancel := context.WithTimeout(ctx, m.timeout)
		err := wire.FromStatus(m.router.call(limited, address, method, request, response))
		cancel()
		var notLeader *wire.NotLeaderError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &notLeader):
			if m.leader = notLeader.Leader; m.leader == "" {
				rejected = 0 // the seed knows the user, and there is no leader yet
			}
		case errors.Is(err, wire.ErrUnauthenticated) && rejected+1 < len(m.seeds):
			m.leader, rejected = "", rejected+1
		case errors.Is(err, wire.ErrUnauthenticated):
			return fmt.Errorf("%s: %w; check that secret-file has the secret of a user that all members know", address, err)
		case errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain):
			m.leader = ""
		default:
			return err
		}
		if ended := engine.Sleep(ctx, joinRetryInterval); ended != nil {
			return fmt.Errorf("%w: %s: %w", ended, address, err)
		}
	}
}
