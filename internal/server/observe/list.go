package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// defaultPage is the default page size of List.
const defaultPage = 100

// List returns the locks in use that the caller may read, sorted by name. It reads locks
// in efficiency mode from the Redis nodes, which needs no leader, unless the policies put
// all locks with the prefix into correctness mode.
func (s *Service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	size := cmp.Or(int(r.PageSize), defaultPage)
	if size < 0 || size > raftstore.MaxPage {
		return nil, fmt.Errorf("%w: pageSize (%d) must be from 1 to %d", engine.ErrInvalid, size, raftstore.MaxPage)
	}
	mode, err := wire.ParseMode(r.Mode)
	if err != nil {
		return nil, err
	}
	response := &pb.ListResponse{}
	// Each read scans the Redis nodes, so after the first one the pages are large: the
	// caller may be allowed to see few of the locks.
	for after, page := fencing.Resource(r.PageToken), size; ; page = raftstore.MaxPage {
		list, err := routing.Ask(ctx, s.router, func() ([]engine.Status, error) {
			return s.list(ctx, mode, r.Prefix, after, page)
		})
		if err != nil {
			return nil, err
		}
		for _, status := range list {
			if len(response.Locks) < size && auth.Can(ctx, auth.Read, string(status.Resource)) {
				response.Locks = append(response.Locks, wire.FromStatusOf(auth.Visible(ctx, status), s.router.Clock.Now().Time()))
			}
		}
		if len(response.Locks) == size {
			response.NextPageToken = response.Locks[size-1].Resource
			return response, nil
		}
		if len(list) < page {
			return response, nil
		}
		after = list[len(list)-1].Resource
	}
}

// list returns at most limit locks of a mode. engine.AnyMode selects both modes.
func (s *Service) list(ctx context.Context, mode engine.Mode, prefix string, after fencing.Resource,
	limit int) ([]engine.Status, error) {
	var list []engine.Status
	var err error
	noFleet := s.router.Node.Topology().Fleet.IsZero()
	switch {
	case mode != engine.Efficiency:
		list, err = s.router.Node.List(ctx, prefix, after, limit, raftstore.Linearizable)
	case noFleet: // a member that was restarted while there is no leader has not applied its log yet
		err = s.router.RequireLeader()
	}
	if err != nil {
		return nil, err
	}
	if mode != engine.Correctness && !noFleet && !s.router.Only(engine.Correctness, prefix) {
		inRedis, err := s.listRedis(ctx, prefix, after, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, inRedis...)
	}
	slices.SortFunc(list, func(x, y engine.Status) int { return cmp.Compare(x.Resource, y.Resource) })
	return list[:min(limit, len(list))], nil
}

// listRedis reads locks from the Redis nodes. It skips locks that are in
// correctness mode by now: their leases on the nodes were not released, and the
// gates reject their tokens.
func (s *Service) listRedis(ctx context.Context, prefix string, after fencing.Resource, limit int) ([]engine.Status,
	error) {
	backend, err := s.router.Redis.Backend()
	if err != nil {
		return nil, err
	}
	var list []engine.Status
	for len(list) < limit {
		page, err := backend.List(ctx, prefix, after, limit)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if s.router.ModeOf(page[i].Resource) == engine.Efficiency {
				list = append(list, page[i])
			}
		}
		if len(page) < limit {
			break
		}
		after = page[len(page)-1].Resource
	}
	return list[:min(limit, len(list))], nil
}
