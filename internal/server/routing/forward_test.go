package routing

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/testserver"
)

// waitingMember is a member where acquires wait until it stops.
type waitingMember struct {
	pb.UnimplementedLeaseServiceServer
	arrived, stop chan struct{}
	server        *grpc.Server
}

func (m *waitingMember) Acquire(context.Context, *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	m.arrived <- struct{}{}
	<-m.stop
	return &pb.AcquireResponse{}, nil
}

func (m *waitingMember) Release(context.Context, *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	return &pb.ReleaseResponse{}, nil
}

// serveWaiting starts a waitingMember that accepts a limited number of concurrent streams on each connection.
func serveWaiting(t *testing.T, address string, streams uint32) *waitingMember {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	m := &waitingMember{arrived: make(chan struct{}, 10*maxCalls), stop: make(chan struct{}),
		server: grpc.NewServer(grpc.MaxConcurrentStreams(streams))}
	pb.RegisterLeaseServiceServer(m.server, m)
	go func() { _ = m.server.Serve(listener) }()
	t.Cleanup(func() { close(m.stop); m.server.Stop() })
	return m
}

// A release does not wait behind the acquires that wait for it, however many there are.
func TestForwardedCallsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	address := testserver.FreeAddr(t)
	m := serveWaiting(t, address, maxCalls)
	f := NewForwarder(newMembership().router, false)
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2*maxCalls + 1 {
		go func() {
			_ = f.Call(ctx, address, pb.LeaseService_Acquire_FullMethodName, &pb.AcquireRequest{}, &pb.AcquireResponse{})
		}()
	}
	for range 2*maxCalls + 1 {
		select {
		case <-m.arrived:
		case <-ctx.Done():
			t.Fatal("an acquire waits for another call")
		}
	}
	for range maxCalls + 1 { // one after the other
		require.NoError(t, f.Call(ctx, address, pb.LeaseService_Release_FullMethodName,
			&pb.ReleaseRequest{}, &pb.ReleaseResponse{}))
	}
	require.Len(t, f.conns[address], 3, "calls that have ended leave room")
}

// A member that goes away before it answers may have received the call.
func TestForwardedCallMayHaveArrived(t *testing.T) {
	t.Parallel()
	address := testserver.FreeAddr(t)
	m := serveWaiting(t, address, maxCalls)
	f := NewForwarder(newMembership().router, false)
	defer f.Close()
	go func() {
		<-m.arrived
		m.server.Stop()
	}()
	err := f.Call(t.Context(), address, pb.LeaseService_Acquire_FullMethodName, &pb.AcquireRequest{},
		&pb.AcquireResponse{})
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.NotErrorIs(t, err, ErrNotReached)
}

// A call that ends before there is a connection was not sent. The member is stopped: its system connects, and it does
// not answer.
func TestCallWithoutAConnectionWasNotSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	f := NewForwarder(newMembership().router, false)
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := listener.Accept(); err == nil {
			cancel()
			<-t.Context().Done()
			conn.Close()
		}
	}()
	err = f.Call(ctx, listener.Addr().String(), pb.LeaseService_Acquire_FullMethodName, &pb.AcquireRequest{},
		&pb.AcquireResponse{})
	require.ErrorIs(t, err, ErrNotReached)
}

// A member that cannot be reached is tried again soon, however often it has failed: it may be the leader.
func TestForwarderTriesAgainSoon(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var tries atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			conn.Close()
		}
	}()
	f := NewForwarder(newMembership().router, false)
	defer f.Close()
	require.Eventually(t, func() bool {
		require.ErrorIs(t, f.Call(t.Context(), listener.Addr().String(), pb.LeaseService_Release_FullMethodName,
			&pb.ReleaseRequest{}, &pb.ReleaseResponse{}), ErrNotReached)
		return tries.Load() >= 8
	}, 20*time.Second, 10*time.Millisecond)
}
