package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// maxMessage bounds one message, and so what a stranger can make us keep.
	maxMessage = 16 << 20
	// sweepPause is how often forgotten sessions are looked for.
	sweepPause = time.Second
	// headerTime bounds how long an HTTP client may take to say what it wants.
	headerTime = 10 * time.Second
)

// Server is the API of one member. Serve runs it, Close ends it.
type Server struct {
	config  Config
	split   *splitter
	address string // of the API, as others are told
	router  *router
	lease   *service
	admin   *admin
	bridge  *bridge
	grpc    *grpc.Server
	http    *http.Server
	health  *health.Server

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// New puts a server together on a listener, which it closes in the end. Without
// TLS it must be on a loopback address.
func New(config Config, listener net.Listener) (*Server, error) {
	config, err := config.filled()
	if err != nil {
		return nil, err
	}
	if err := CheckAddress(listener.Addr().String(), config.TLS); err != nil {
		return nil, err
	}
	if config.Advertise == "" {
		config.Advertise = listener.Addr().String()
	}
	backend, err := raftstore.NewBackend([]*raftstore.Node{config.Node}, raftstore.WithPatience(0))
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, split: newSplitter(listener, config.TLS), address: config.Advertise, health: health.NewServer(),
		router: &router{node: config.Node, raft: backend, redis: config.Redis, clock: config.Clock}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	fast := newBook(config.Clock, config.Feed)
	s.lease = &service{Server: s, router: s.router, sessions: newRegistry(s.router, fast), book: fast, reasons: config.Feed.why}
	s.admin = &admin{Server: s, mover: &mover{config: &s.config, router: s.router}}
	s.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(s.unaryErrors, s.unaryUsers), grpc.ChainStreamInterceptor(s.streamErrors, s.streamUsers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
	pb.RegisterLeaseServiceServer(s.grpc, s.lease)
	pb.RegisterPolicyServiceServer(s.grpc, s.admin)
	pb.RegisterClusterServiceServer(s.grpc, s.admin)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.bridge = newBridge(s)
	s.http = &http.Server{Handler: s.bridge, ReadHeaderTimeout: headerTime, BaseContext: func(net.Listener) context.Context { return s.ctx }}
	return s, nil
}

// Address is where clients and other members are told that the API is.
func (s *Server) Address() string { return s.address }

// Serve answers until Close, and returns nil then. It is called once.
func (s *Server) Serve() error {
	s.work.Go(func() { (&announcer{server: s}).run(s.ctx) })
	s.work.Go(s.keepHouse)
	s.work.Go(func() { _ = s.grpc.Serve(s.split.grpc) }) // ends with the splitter
	s.work.Go(func() { _ = s.http.Serve(s.split.http) })
	err := s.split.run()
	if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// keepHouse forgets old sessions and keeps gRPC's health service right.
func (s *Server) keepHouse() {
	tick := time.NewTicker(sweepPause)
	defer tick.Stop()
	for {
		state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if s.healthy() == "" {
			state = grpc_health_v1.HealthCheckResponse_SERVING
		}
		s.health.SetServingStatus("", state)
		s.lease.sessions.sweep()
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// Close ends all calls and connections. A leader should hand over first:
// Node.Transfer. The node and the Redis backend stay open; closing the latter
// would release leases that clients keep through another member.
func (s *Server) Close() error {
	s.cancel()
	s.split.close()
	s.grpc.Stop()
	err := s.http.Close()
	s.work.Wait()
	return err
}

// unaryErrors turns errors into what gRPC needs.
func (s *Server) unaryErrors(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	return response, wire.ToStatus(s.explain(err))
}

func (s *Server) streamErrors(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return wire.ToStatus(s.explain(handler(server, stream)))
}
