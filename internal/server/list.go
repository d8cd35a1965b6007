package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// defaultPage is the page size of List.
const defaultPage = 100

// List returns the locks in use, sorted by name. Locks in efficiency mode are read
// from Redis, which needs no leader.
func (s *service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	size := int(r.PageSize)
	switch {
	case size < 0 || size > raftstore.MaxPage:
		return nil, fmt.Errorf("%w: pageSize (%d) must be from 1 to %d", engine.ErrInvalid, size, raftstore.MaxPage)
	case size == 0:
		size = defaultPage
	}
	mode, err := wire.ParseMode(r.Mode)
	if err != nil {
		return nil, err
	}
	list, err := s.list(ctx, mode, r.Prefix, fencing.Resource(r.PageToken), size)
	if err != nil {
		return nil, err
	}
	response := &pb.ListResponse{}
	for i := range list {
		response.Locks = append(response.Locks, wire.FromStatusOf(list[i]))
	}
	if len(list) == size {
		response.NextPageToken = string(list[size-1].Resource)
	}
	return response, nil
}

// list returns at most limit locks of a mode, or of both.
func (s *service) list(ctx context.Context, mode engine.Mode, prefix string, after fencing.Resource, limit int) ([]engine.Status, error) {
	var list []engine.Status
	var err error
	if mode != engine.Efficiency {
		if list, err = s.router.node.List(ctx, prefix, after, limit, raftstore.Linearizable); err != nil {
			return nil, err
		}
	}
	if mode != engine.Correctness && !s.router.node.Topology().Fleet.IsZero() {
		efficient, err := s.listEfficiency(ctx, prefix, after, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, efficient...)
	}
	slices.SortFunc(list, func(x, y engine.Status) int { return cmp.Compare(x.Resource, y.Resource) })
	return list[:min(limit, len(list))], nil
}

// listEfficiency reads locks from Redis. It leaves out those that are in
// correctness mode by now: what Redis has of them was not released, and is fenced.
func (s *service) listEfficiency(ctx context.Context, prefix string, after fencing.Resource, limit int) ([]engine.Status, error) {
	backend, err := s.router.redis.Backend()
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
			if s.router.modeOf(page[i].Resource) == engine.Efficiency {
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
