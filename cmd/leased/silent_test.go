package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/lease"
)

// silentMember is a member that falls silent: it accepts streams and sends nothing on them.
type silentMember struct {
	pb.UnimplementedLeaseServiceServer
	refusals atomic.Int32 // session streams that it refuses before
	answers  bool         // it sends the first message of each stream
}

func (m *silentMember) Session(stream pb.LeaseService_SessionServer) error {
	if m.refusals.Add(-1) >= 0 {
		return status.Error(codes.ResourceExhausted, "too many streams")
	}
	if m.answers {
		_ = stream.Send(&pb.SessionResponse{})
	}
	<-stream.Context().Done()
	return nil
}

func (m *silentMember) Overview(_ *pb.OverviewRequest, stream pb.LeaseService_OverviewServer) error {
	if m.answers {
		_ = stream.Send(&pb.OverviewResponse{})
	}
	<-stream.Context().Done()
	return nil
}

func (m *silentMember) Watch(_ *pb.WatchRequest, stream pb.LeaseService_WatchServer) error {
	if m.answers {
		_ = stream.Send(&pb.Event{Type: "synced"})
	}
	<-stream.Context().Done()
	return nil
}

func (m *silentMember) Inspect(ctx context.Context, _ *pb.InspectRequest) (*pb.InspectResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// serveMember serves a fake member and returns its address.
func serveMember(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func (m *silentMember) serve(t *testing.T) string {
	t.Helper()
	return serveMember(t, func(s *grpc.Server) { pb.RegisterLeaseServiceServer(s, m) })
}

// A command notices that a member has fallen silent, also if the member refused the stream of
// its heartbeats before. The time is checked by the tests of internal/remote.
func TestCommandsNoticeSilence(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, a *access) error{
		"call": func(ctx context.Context, a *access) error {
			_, err := fetch(ctx, a, api.Inspect, &pb.InspectRequest{Resource: "a"})
			return err
		},
		"overview": func(ctx context.Context, a *access) error {
			return newFeed(a, false, func(lockview.Update) {}).stream(ctx, &pb.OverviewRequest{}, "", nil)
		},
		"watch": func(ctx context.Context, a *access) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			w := &watcher{known: map[string]*pb.Event{}, print: func(*pb.Event) error { return nil }}
			return w.run(ctx, a, &pb.WatchRequest{Resource: "a"}, cancel)
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for name, prepare := range map[string]func(*silentMember){
		"from the start":          func(*silentMember) {},
		"after the first message": func(m *silentMember) { m.answers = true },
		"after a refusal":         func(m *silentMember) { m.refusals.Store(2) },
		"after both":              func(m *silentMember) { m.answers = true; m.refusals.Store(2) },
	} {
		for kind, call := range calls {
			m := &silentMember{}
			prepare(m)
			a := &access{endpoint: m.serve(t)}
			running.Go(func() { assert.ErrorIs(t, call(ctx, a), lease.ErrUncertain, "%s, silent %s", kind, name) })
		}
	}
	running.Wait() // all of them wait for the same two seconds
	require.NoError(t, ctx.Err())
}
