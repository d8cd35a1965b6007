package remote_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/lease/remote/wire"
)

// patience ends a test that hangs. It is no measure of speed.
const patience = time.Minute

// member is the API of a member as far as these tests need it. The tests of the
// server run this package against the real one.
type member struct {
	pb.UnimplementedLeaseServiceServer
	pb.UnimplementedPolicyServiceServer
	address string
	server  *grpc.Server

	mu       sync.Mutex
	answer   func(op *pb.Operation) *pb.Answer // nil answers nothing
	asked    []*pb.Operation
	watches  int
	topology *engine.Topology // nil says nothing
	refuses  error
	changed  chan struct{}
}

func startMember(t *testing.T) *member {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &member{address: listener.Addr().String(), server: grpc.NewServer(), changed: make(chan struct{})}
	pb.RegisterLeaseServiceServer(m.server, m)
	pb.RegisterPolicyServiceServer(m.server, m)
	done := make(chan error, 1)
	go func() { done <- m.server.Serve(listener) }()
	t.Cleanup(func() {
		m.server.Stop()
		require.NoError(t, <-done)
	})
	return m
}

// set changes the member.
func (m *member) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *member) operations() []*pb.Operation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *member) watchers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watches
}

// Session answers operations one by one. An Answer with the id 0 ends the stream.
func (m *member) Session(stream pb.LeaseService_SessionServer) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		response := &pb.SessionResponse{}
		m.mu.Lock()
		for _, op := range message.Operations {
			m.asked = append(m.asked, op)
			if m.answer == nil {
				continue
			}
			a := m.answer(op)
			if a == nil {
				m.mu.Unlock()
				return wire.ToStatus(engine.ErrUncertain) // the connection breaks
			}
			a.Id = op.Id
			response.Answers = append(response.Answers, a)
		}
		m.mu.Unlock()
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// WatchTopology tells the topology, and again after each change.
func (m *member) WatchTopology(_ *pb.WatchTopologyRequest, stream pb.PolicyService_WatchTopologyServer) error {
	m.mu.Lock()
	m.watches++
	m.mu.Unlock()
	defer m.set(func() { m.watches-- })
	for {
		m.mu.Lock()
		topology, changed, refuses := m.topology, m.changed, m.refuses
		m.mu.Unlock()
		if refuses != nil {
			return wire.ToStatus(refuses)
		}
		if topology != nil {
			if err := stream.Send(wire.FromTopology(*topology)); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := patient(t)
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			require.FailNow(t, "never: "+what)
		}
	}
}

func backend(t *testing.T, options []remote.Option, members ...*member) *remote.Backend {
	t.Helper()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.address)
	}
	b, err := remote.New(endpoints, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
