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
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// maxMessage bounds one message, and so the memory that a client can use.
	maxMessage = 16 << 20
	// sweepPause is how often the registry is swept.
	sweepPause = time.Second
	// headerTime bounds the time until the headers of an HTTP request are read.
	headerTime = 10 * time.Second
)

// Server is the API of one member. Serve runs it, Close ends it.
type Server struct {
	config  Config
	split   *splitter
	address string // of the API, for clients and other members
	router  *router
	keeper  *fleet.Keeper
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

// New returns a Server on a listener, which Close closes. Without TLS it must be on
// a loopback address.
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
	backend, err := raftstore.NewBackend(config.Node)
	if err != nil {
		return nil, err
	}
	redis := fleet.NewCurrent(config.Node, config.RedisOptions, config.Logger)
	s := &Server{config: config, split: newSplitter(listener, config.TLS), address: config.Advertise, health: health.NewServer(),
		router: &router{node: config.Node, raft: backend, redis: redis, clock: config.Clock},
		keeper: fleet.NewKeeper(config.Node, redis, config.Redis, config.Clock, config.Logger)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.lease = &service{Server: s, router: s.router, sessions: newRegistry(s.router), efficiency: &efficiency{router: s.router}}
	s.admin = &admin{Server: s}
	s.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(s.unaryErrors, s.unaryUsers), grpc.ChainStreamInterceptor(s.streamErrors, s.streamUsers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
	pb.RegisterLeaseServiceServer(s.grpc, s.lease)
	pb.RegisterPolicyServiceServer(s.grpc, s.admin)
	pb.RegisterRedisServiceServer(s.grpc, s.admin)
	pb.RegisterClusterServiceServer(s.grpc, s.admin)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.bridge = newBridge(s)
	s.http = &http.Server{Handler: s.bridge, ReadHeaderTimeout: headerTime, BaseContext: func(net.Listener) context.Context { return s.ctx }}
	return s, nil
}

// Address returns the address of the API for clients and other members.
func (s *Server) Address() string { return s.address }

// Serve answers until Close, and returns nil then. It is called once.
func (s *Server) Serve() error {
	s.work.Go(func() { (&announcer{server: s}).run(s.ctx) })
	s.work.Go(s.housekeeping)
	s.work.Go(func() { s.router.redis.Run(s.ctx) })
	s.work.Go(func() { s.keeper.Run(s.ctx) })
	s.work.Go(func() { _ = s.grpc.Serve(s.split.grpc) }) // ends with the splitter
	s.work.Go(func() { _ = s.http.Serve(s.split.http) })
	err := s.split.run()
	if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// housekeeping forgets unused sessions and updates gRPC's health service.
func (s *Server) housekeeping() {
	tick := time.NewTicker(sweepPause)
	defer tick.Stop()
	for {
		state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if reason, limited := s.healthy(); reason == "" && (limited == "" || s.admin.votesMissing(s.ctx) == "") {
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
// Node.Transfer. The node stays open. Leases in efficiency mode stay held: their
// holders renew them through another member.
func (s *Server) Close() error {
	s.cancel()
	s.split.close()
	s.grpc.Stop()
	err := s.http.Close()
	s.work.Wait()
	return err
}

// unaryErrors turns errors into gRPC statuses.
func (s *Server) unaryErrors(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	return response, wire.ToStatus(s.explain(err))
}

func (s *Server) streamErrors(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return wire.ToStatus(s.explain(handler(server, stream)))
}
