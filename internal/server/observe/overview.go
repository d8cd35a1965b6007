package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// defaultRows and maxRows are numbers of locks in a list.
	defaultRows, maxRows = 50, 500
	// defaultInterval and minInterval are times between two lists of a stream.
	defaultInterval, minInterval = time.Second, 500 * time.Millisecond
	// maxParties is the number of holders and of waiters of a lock in a list.
	maxParties = 5
)

// overviewRequest is a valid pb.OverviewRequest.
type overviewRequest struct {
	*pb.OverviewRequest
	mode     engine.Mode
	order    string
	limit    int
	interval time.Duration
}

func parseOverview(r *pb.OverviewRequest) (q overviewRequest, err error) {
	q = overviewRequest{OverviewRequest: r, limit: cmp.Or(int(r.Limit), defaultRows)}
	if q.mode, err = wire.ParseMode(r.Mode); err != nil {
		return q, err
	}
	if q.order, err = parseOrder(r.Sort); err != nil {
		return q, err
	}
	if q.interval, err = wire.ParsePositive("interval", r.Interval); err != nil {
		return q, err
	}
	switch {
	case q.Offset < 0:
		return q, fmt.Errorf("%w: offset (%d) must not be negative", engine.ErrInvalid, q.Offset)
	case q.limit < 0 || q.limit > maxRows:
		return q, fmt.Errorf("%w: limit (%d) must be from 1 to %d", engine.ErrInvalid, q.limit, maxRows)
	}
	q.interval = max(cmp.Or(q.interval, defaultInterval), minInterval)
	return q, nil
}

// Overview sends the locks at the top of a sorted list until the caller ends the call, or
// until this member does not lead any more.
func (s *Service) Overview(r *pb.OverviewRequest, stream pb.LeaseService_OverviewServer) error {
	q, err := parseOverview(r)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	for {
		if !q.Local {
			if err := s.router.RequireLeader(); err != nil {
				return err
			}
		}
		begin := s.router.Clock.Now()
		response := s.view(ctx, s.scan(), q)
		cost := s.router.Clock.Now().Since(begin)
		if err := stream.Send(response); err != nil {
			return err
		}
		if err := engine.Sleep(ctx, max(q.interval-cost, min(longest, share*cost))); err != nil {
			return err
		}
	}
}

// view returns what the caller may see of a scan.
func (s *Service) view(ctx context.Context, all *scan, q overviewRequest) *pb.OverviewResponse {
	response := &pb.OverviewResponse{Member: s.router.Node.ID()}
	if q.mode != engine.Correctness && !s.router.Only(engine.Correctness, q.Prefix) {
		response.Missing = all.missing
	}
	var page []*row
	matches := s.matcher(q.Search)
	for _, r := range all.by(q.order) {
		if !strings.HasPrefix(string(r.name), q.Prefix) || q.mode != engine.AnyMode && q.mode != r.mode ||
			!auth.Can(ctx, auth.Read, string(r.name)) {
			continue
		}
		response.GrantsPerSecond += r.rate
		response.Refused += r.refused
		if r.inUse() {
			response.TotalLocks++
			response.TotalHolders += int64(r.holders)
			response.TotalWaiters += int64(r.waiters)
		} else if !orders[q.order].free {
			continue
		}
		if !matches(r) {
			continue
		}
		if response.Listed >= int64(q.Offset) && len(page) < q.limit {
			page = append(page, r)
		}
		response.Listed++
	}
	if q.Prefix == "" && q.mode == engine.AnyMode && auth.CanReadAll(ctx) {
		// The rates of locks that were used once may have been dropped.
		response.GrantsPerSecond = max(response.GrantsPerSecond, all.grants)
	}
	now := s.router.Clock.Now().Time()
	for _, r := range page {
		response.Locks = append(response.Locks, s.describe(ctx, r, now))
	}
	return response
}

// matcher returns whether a lock has text in its name, or in the name or the user of one of its first
// parties, ignoring case. Whoever may read a lock sees all of these.
func (s *Service) matcher(text string) func(r *row) bool {
	if text == "" {
		return func(*row) bool { return true }
	}
	text = strings.ToLower(text)
	matches := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	inRaft := s.router.Node.Search(matches, maxParties)
	has := func(p engine.Party) bool { return matches(p.Holder) || matches(p.User) }
	return func(r *row) bool {
		if r.status != nil && (slices.ContainsFunc(r.status.Holders, has) || slices.ContainsFunc(r.status.Waiters, has)) {
			return true
		}
		return matches(string(r.name)) || inRaft[r.name] && r.mode == engine.Correctness
	}
}

// describe returns a lock with its first holders and waiters.
func (s *Service) describe(ctx context.Context, r *row, now time.Time) *pb.LockOverview {
	status, holders, waiters := engine.Status{Resource: r.name, Mode: r.mode}, r.holders, r.waiters
	switch {
	case r.status != nil:
		status = *r.status
		status.Holders = slices.Clone(status.Holders[:min(maxParties, len(status.Holders))])
		status.Waiters = status.Waiters[:min(maxParties, len(status.Waiters))]
	case r.mode == engine.Correctness:
		status, holders, waiters = s.router.Node.InspectFirst(r.name, maxParties)
	}
	return &pb.LockOverview{Lock: wire.FromStatusOf(auth.Visible(ctx, status), now), GrantsPerSecond: r.rate,
		Refused: r.refused,
		Waiters: int32(waiters), Holders: int32(holders)}
}
