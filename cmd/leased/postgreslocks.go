package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// noService is the connection to a service if there is none.
type noService struct{}

var errNoService = fmt.Errorf("%w: locks in PostgreSQL do not have this; it needs a lock service",
	engine.ErrUnsupported)

// Invoke returns an error.
func (noService) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errNoService
}

// NewStream returns an error.
func (noService) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoService
}

// postgresLocks has the calls of a service that commands use, for locks in a database. The
// others return errNoService.
type postgresLocks struct {
	pb.LeaseServiceClient
	backend *postgres.Backend
}

// Acquire takes locks, in a new session. The calls of an attempt have one session id, so that the database knows them.
func (l *postgresLocks) Acquire(ctx context.Context, r *pb.AcquireRequest, _ ...grpc.CallOption) (*pb.AcquireResponse,
	error) {
	names := r.Resources
	if r.Resource != "" {
		names = []string{r.Resource}
	}
	ttl, err := wire.ParsePositive("ttl", r.Ttl)
	if err != nil {
		return nil, err
	}
	wait, err := wire.ParseDuration("wait", r.Wait)
	if err != nil {
		return nil, err
	}
	request, err := wire.ToRequest(&pb.AcquireCall{Nonce: 1, Resources: names, Mode: r.Mode, Wait: wait > 0,
		Holder: r.Holder, Metadata: r.Metadata, Shared: r.Shared, Permits: r.Permits})
	if err != nil {
		return nil, err
	}
	ttl = cmp.Or(ttl, engine.DefaultTTL)
	id := engine.NewSessionID()
	if r.Attempt != "" {
		hash := sha256.Sum256([]byte(r.Attempt))
		id = engine.SessionID(hash[:len(id)])
	}
	session, err := l.backend.Open(ctx, engine.SessionConfig{ID: id, TTL: ttl})
	if err != nil {
		return nil, err
	}
	limited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w: waited %v", engine.ErrHeld, wait))
		defer cancel()
	}
	grant, err := session.Acquire(limited, request)
	held := engine.Held{Nonce: request.Nonce, Resources: request.Resources, Name: grant.Name, TTL: ttl}
	if err == nil && request.Wait { // the caller counts the TTL from the answer
		err = session.Update(ctx, held)
	}
	if r.Attempt != "" && temporary(err) && limited.Err() == nil {
		return nil, err // the caller repeats the attempt
	}
	if err != nil {
		held.Name = "" // a copy of the call may still arrive
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = session.Release(cleanup, held) // otherwise it expires
		return nil, err
	}
	return &pb.AcquireResponse{Resource: names[0], Resources: names, Token: uint64(grant.Token),
		Mode: wire.ModeText(grant.Mode), Holder: r.Holder, Ttl: wire.DurationText(ttl)}, nil
}

// Renew extends a lease by its TTL, or by the TTL of the request.
func (l *postgresLocks) Renew(ctx context.Context, r *pb.RenewRequest, _ ...grpc.CallOption) (*pb.RenewResponse,
	error) {
	ttl, err := wire.ParsePositive("ttl", r.Ttl)
	if err != nil {
		return nil, err
	}
	ttl, err = l.backend.Renew(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token), ttl, r.Metadata)
	return &pb.RenewResponse{Ttl: wire.DurationText(ttl), Tokens: []uint64{r.Token}}, err
}

// Release ends a lease of the caller's role.
func (l *postgresLocks) Release(ctx context.Context, r *pb.ReleaseRequest, _ ...grpc.CallOption) (*pb.ReleaseResponse,
	error) {
	err := l.backend.Release(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
	if err != nil && !errors.Is(err, engine.ErrNotHeld) {
		return nil, err
	}
	return &pb.ReleaseResponse{Released: err == nil}, nil
}

// Break ends a lease of any role.
func (l *postgresLocks) Break(ctx context.Context, r *pb.BreakRequest, _ ...grpc.CallOption) (*pb.BreakResponse,
	error) {
	return &pb.BreakResponse{}, l.backend.Break(ctx, fencing.Resource(r.Resource), fencing.Token(r.Token))
}

// Inspect returns the holder and the waiters of a lock.
func (l *postgresLocks) Inspect(ctx context.Context, r *pb.InspectRequest, _ ...grpc.CallOption) (*pb.InspectResponse,
	error) {
	status, err := l.backend.Inspect(ctx, fencing.Resource(r.Resource))
	return &pb.InspectResponse{Lock: wire.FromStatusOf(status, time.Now())}, err
}

// List returns a page of locks.
func (l *postgresLocks) List(ctx context.Context, r *pb.ListRequest, _ ...grpc.CallOption) (*pb.ListResponse, error) {
	response := &pb.ListResponse{}
	mode, err := wire.ParseMode(r.Mode)
	if err != nil || mode == engine.Efficiency {
		return response, err
	}
	page, err := l.backend.List(ctx, r.Prefix, fencing.Resource(r.PageToken))
	for _, status := range page {
		response.Locks = append(response.Locks, wire.FromStatusOf(status, time.Now()))
		response.NextPageToken = string(status.Resource)
	}
	return response, err
}

// Overview returns the locks in an order again and again.
func (l *postgresLocks) Overview(ctx context.Context, r *pb.OverviewRequest,
	_ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.OverviewResponse], error) {
	interval, err := wire.ParsePositive("interval", r.Interval)
	return &postgresOverview{ctx: ctx, locks: l, request: r, interval: interval}, err
}

// postgresOverview is a stream of overviews.
type postgresOverview struct {
	grpc.ClientStream
	ctx      context.Context
	locks    *postgresLocks
	request  *pb.OverviewRequest
	interval time.Duration
	started  bool
}

// Recv reads all locks, after a pause unless it is the first time.
func (o *postgresOverview) Recv() (*pb.OverviewResponse, error) {
	if o.started {
		if err := engine.Sleep(o.ctx, o.interval); err != nil {
			return nil, err
		}
	}
	o.started = true
	var all pb.ListResponse
	mode := cmp.Or(o.request.Mode, engine.Correctness.String())
	if err := readMode(o.ctx, o.locks, o.request.Prefix, mode, &all); err != nil {
		return nil, err
	}
	sortLocks(all.Locks, o.request.Sort)
	overview := &pb.OverviewResponse{Member: "PostgreSQL", TotalLocks: int64(len(all.Locks))}
	for _, lock := range all.Locks {
		overview.TotalHolders += int64(len(lock.Holders))
		overview.TotalWaiters += int64(len(lock.Waiters))
		overview.Locks = append(overview.Locks, &pb.LockOverview{Lock: lock, Waiters: int32(len(lock.Waiters)),
			Holders: int32(len(lock.Holders))})
	}
	first := min(int(o.request.Offset), len(overview.Locks))
	overview.Locks = slices.Clone(overview.Locks[first:min(first+cmp.Or(int(o.request.Limit), 50), len(overview.Locks))])
	return overview, nil
}
