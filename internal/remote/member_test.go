package remote_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// testTimeout ends a test that hangs.
const testTimeout = time.Minute

// waits is an answer that is not sent.
var waits = &pb.Answer{}

// member is a fake member of the service: a real gRPC server whose answers the test
// sets. The tests of the server run this package against real members.
type member struct {
	pb.UnimplementedLeaseServiceServer
	pb.UnimplementedPolicyServiceServer
	address string
	server  *grpc.Server

	mu       sync.Mutex
	answer   func(op *pb.Operation) *pb.Answer // nil sends no answer
	notices  []*pb.Notice                      // sent with the next answers
	received []*pb.Operation
	streams  int
	inspect  func() (*pb.Lock, error)
	watches  int
	topology *engine.Topology // nil sends none
	rejects  error            // the answer to every new stream

	rejectsSessions error         // the answer to every new session stream
	endsSessions    time.Duration // the time after which a session stream ends, 0 for never
	topologies      int           // number of topology streams so far
	hides           bool          // it sends nothing to watches of locks
	attachTime      time.Duration // how long it takes to send the answer to an attach

	reports       []*pb.ReportRefusalRequest
	refuseReports error
	changed       chan struct{} // closed and replaced by set
}

func startMember(t testing.TB) *member {
	t.Helper()
	return startMemberAt(t, "127.0.0.1:0")
}

func startMemberAt(t testing.TB, address string) *member {
	t.Helper()
	var listener net.Listener
	require.Eventually(t, func() bool {
		var err error
		listener, err = net.Listen("tcp", address)
		return err == nil
	}, testTimeout, 5*time.Millisecond, "listen on %s", address)
	return serveMember(t, listener)
}

func serveMember(t testing.TB, listener net.Listener) *member {
	t.Helper()
	m := &member{address: listener.Addr().String(), server: grpc.NewServer(), changed: make(chan struct{})}
	pb.RegisterLeaseServiceServer(m.server, m)
	pb.RegisterPolicyServiceServer(m.server, m)
	done := make(chan error, 1)
	go func() { done <- m.server.Serve(listener) }()
	t.Cleanup(func() {
		m.server.Stop()
		if err := <-done; !errors.Is(err, grpc.ErrServerStopped) { // the test stopped it before Serve
			require.NoError(t, err)
		}
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
	return m.received
}

// opened returns the number of session streams so far.
func (m *member) opened() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams
}

func (m *member) watchers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watches
}

// begun returns the number of topology streams so far.
func (m *member) begun() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.topologies
}

// Session answers operations one by one, and sends heartbeats. If answer returns nil the
// stream breaks.
func (m *member) Session(stream pb.LeaseService_SessionServer) error {
	m.mu.Lock()
	m.streams++
	rejects, ends := cmp.Or(m.rejects, m.rejectsSessions), m.endsSessions
	m.mu.Unlock()
	if rejects != nil {
		return wire.ToStatus(rejects)
	}
	if ends > 0 {
		return m.beat(stream, ends)
	}
	sending := make(chan struct{}, 1)
	send := func(response *pb.SessionResponse, takes time.Duration) error {
		sending <- struct{}{}
		defer func() { <-sending }()
		_ = engine.Sleep(stream.Context(), takes)
		return stream.Send(response)
	}
	go func() {
		ticker := time.NewTicker(clientcore.HeartbeatInterval)
		defer ticker.Stop()
		for send(&pb.SessionResponse{}, 0) == nil {
			select {
			case <-ticker.C:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		response, takes := &pb.SessionResponse{}, time.Duration(0)
		m.mu.Lock()
		for _, op := range message.Operations {
			m.received = append(m.received, op)
			if m.answer == nil {
				continue
			}
			a := m.answer(op)
			if a == nil {
				m.mu.Unlock()
				return wire.ToStatus(engine.ErrUncertain)
			}
			if a == waits {
				continue
			}
			if op.GetAttach() != nil {
				takes = m.attachTime
			}
			a.Id = op.Id
			response.Answers = append(response.Answers, a)
		}
		response.Notices, m.notices = m.notices, nil
		m.mu.Unlock()
		if err := send(response, takes); err != nil {
			return err
		}
	}
}

// beat sends heartbeats for a while.
func (m *member) beat(stream pb.LeaseService_SessionServer, d time.Duration) error {
	for range d / clientcore.HeartbeatInterval {
		if err := stream.Send(&pb.SessionResponse{}); err != nil {
			return err
		}
		select {
		case <-time.After(clientcore.HeartbeatInterval):
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	return wire.ToStatus(engine.ErrUnavailable)
}

// Inspect answers with the inspect function.
func (m *member) Inspect(context.Context, *pb.InspectRequest) (*pb.InspectResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lock, err := m.inspect()
	return &pb.InspectResponse{Lock: lock}, wire.ToStatus(err)
}

// Watch sends an event now and after each change.
func (m *member) Watch(_ *pb.WatchRequest, stream pb.LeaseService_WatchServer) error {
	m.mu.Lock()
	m.watches++
	m.mu.Unlock()
	defer m.set(func() { m.watches-- })
	for {
		m.mu.Lock()
		changed, rejects, hides := m.changed, m.rejects, m.hides
		m.mu.Unlock()
		if rejects != nil {
			return wire.ToStatus(rejects)
		}
		if !hides {
			if err := stream.Send(&pb.Event{}); err != nil {
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

// WatchTopology sends the topology now and after each change.
func (m *member) WatchTopology(_ *pb.WatchTopologyRequest, stream pb.PolicyService_WatchTopologyServer) error {
	m.mu.Lock()
	m.watches++
	m.topologies++
	m.mu.Unlock()
	defer m.set(func() { m.watches-- })
	for {
		m.mu.Lock()
		topology, changed, rejects := m.topology, m.changed, m.rejects
		m.mu.Unlock()
		if rejects != nil {
			return wire.ToStatus(rejects)
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

// bounded returns a context that ends a test that hangs.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, testTimeout, 5*time.Millisecond, what)
}

func backend(t testing.TB, config remote.Config, members ...*member) *remote.Backend {
	t.Helper()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.address)
	}
	b, err := remote.New(endpoints, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
