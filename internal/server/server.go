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
	"github.com/leased-project/leased/internal/server/admin"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/dashboard"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/history"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/server/leases"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/overview"
	"github.com/leased-project/leased/internal/server/peers"
	"github.com/leased-project/leased/internal/server/portmux"
	"github.com/leased-project/leased/internal/server/probes"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/server/watch"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// maxStreams bounds the concurrent calls of one gRPC connection. Further calls wait
	// in the client.
	maxStreams = 1000
	// maxHeader bounds the headers of a call.
	maxHeader = 16 << 10
	// maintenanceInterval is the time between two runs of maintain.
	maintenanceInterval = time.Second
	// headerTimeout bounds the time until the headers of an HTTP request, or the first
	// frames of a gRPC connection, are read.
	headerTimeout = 10 * time.Second
)

// Server is the API of one member. Serve runs it, Close ends it.
type Server struct {
	router  *routing.Router
	keeper  *fleet.Keeper
	peers   *peers.Client
	leases  *leases.Service
	limits  *limits.Accounts
	admin   *admin.Service
	mux     *portmux.Mux
	grpc    *grpc.Server
	http    *http.Server
	health  *health.Server
	metrics *metrics.Metrics

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// starting is held while Serve starts the work and while Close ends it: no work starts after Close.
	starting sync.Mutex
	work     sync.WaitGroup
}

// leaseService is leased.v1.LeaseService.
type leaseService struct {
	*leases.Service
	*watch.Watcher
	*historyService
	*overviewService
}

type (
	historyService  = history.Service
	overviewService = overview.Service
)

// New returns a Server on a listener, which Close closes. Without TLS the listener
// must have a loopback address.
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
	redis := fleet.NewConnection(config.Node, config.RedisOptions, config.Metrics.RedisHooks(), config.Logger)
	redis.NodeTimeout = config.RedisTimeout
	s := &Server{mux: portmux.New(listener, config.TLS, config.Limits.Connections), health: health.NewServer(),
		router: &routing.Router{Node: config.Node, Raft: backend, Redis: redis, Clock: config.Clock, Address: config.Advertise},
		keeper: fleet.NewKeeper(config.Node, redis, config.Redis, config.Clock, config.Logger)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.peers = &peers.Client{Router: s.router, TLS: config.PeerTLS, Secret: config.Secret}
	config.Node.SetLimits(config.Limits.Cluster)
	s.limits = limits.NewAccounts(config.Limits, config.Clock)
	s.limits.CloseLater = s.mux.CloseLater
	s.leases = leases.New(s.router, config.Audit, s.limits)
	s.leases.Metrics, s.leases.Recorder, s.leases.Tracer = config.Metrics, config.Hub.Recorder, config.Tracer
	s.leases.Signing = leases.Signing{Signer: config.Signer, TTL: config.SignatureTTL, Clock: config.Clock}
	s.admin = admin.New(admin.Config{Router: s.router, Keeper: s.keeper, Peers: s.peers, RedisOptions: config.RedisOptions,
		FilePolicies: config.FilePolicies, Version: config.Version})
	s.metrics = config.Metrics
	s.metrics.Observe(metrics.Source{Node: config.Node, Redis: redis.Backend, Certificates: config.Certificates, LostAuditLines: config.Audit.Lost})
	s.register(config)
	return s, nil
}

// register offers the services to gRPC and HTTP.
func (s *Server) register(config Config) {
	leaseAPI := leaseService{s.leases, watch.NewWatcher(s.router, config.Hub), history.NewService(s.router, config.Hub.Recorder),
		overview.NewService(s.router, config.Hub.Recorder)}
	leaseAPI.Refused = s.metrics.GateRefused
	config.Hub.OnExpired(func(e *machine.Event) {
		if config.Node.Leads() {
			config.Audit.Expired(e)
		}
	})
	s.grpc = grpc.NewServer(grpc.Creds(auth.TransportCredentials()), grpc.MaxRecvMsgSize(limits.MaxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeader), grpc.ConnectionTimeout(headerTimeout),
		grpc.ChainUnaryInterceptor(s.unaryErrors, s.metrics.UnaryInterceptor, config.Audit.UnaryRefusals, config.Users.UnaryInterceptor, s.limits.UnaryInterceptor, config.Audit.UnaryEvents),
		grpc.ChainStreamInterceptor(s.streamErrors, s.metrics.StreamInterceptor, config.Audit.StreamRefusals, config.Users.StreamInterceptor, s.limits.StreamInterceptor, config.Audit.StreamEvents),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, MaxConnectionIdle: config.Limits.IdleTimeout}))
	pb.RegisterLeaseServiceServer(s.grpc, leaseAPI)
	pb.RegisterPolicyServiceServer(s.grpc, s.admin)
	pb.RegisterRedisServiceServer(s.grpc, s.admin)
	pb.RegisterClusterServiceServer(s.grpc, s.admin)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	handler := httpapi.New(httpapi.Config{Leases: leaseAPI, Policies: s.admin, Redis: s.admin, Cluster: s.admin,
		Router: s.router, Peers: s.peers, Users: config.Users, Audit: config.Audit, Limits: s.limits, Probes: probes.NewHandler(s.Ready), Metrics: s.metrics,
		Dashboard: s.newDashboard(config, leaseAPI)})
	s.http = &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: config.Limits.IdleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return s.ctx }}
}

// newDashboard returns the web page of this member.
func (s *Server) newDashboard(config Config, leaseAPI leaseService) *dashboard.Handler {
	return dashboard.New(dashboard.Config{Leases: leaseAPI, Policies: s.admin, Redis: s.admin, Cluster: s.admin, Router: s.router,
		Users: config.Users, Audit: config.Audit, Encode: httpapi.Encode, Version: config.Version, Clock: config.Clock,
		Local: dashboard.Local{Inspect: leaseAPI.LocalInspect, History: leaseAPI.LocalHistory,
			Policies: func(ctx context.Context) (*pb.ListPoliciesResponse, error) {
				return s.admin.ReadPolicies(ctx, raftstore.Stale)
			}}})
}

// Address returns the API address for clients and other members.
func (s *Server) Address() string { return s.router.Address }

// Ready reports whether the service can be used through this member, as Health does.
func (s *Server) Ready(ctx context.Context) (ready bool, reason string) {
	health, err := s.admin.Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return false, err.Error()
	}
	return health.Status == "serving", health.Reason
}

// Stopping makes Ready and Health report that this member shuts down. It still
// serves.
func (s *Server) Stopping() { s.admin.Stopping() }

// Join makes this member, whose node is new, join the cluster of the members at
// these API addresses. It retries until ctx ends while no member can be reached or
// the cluster has no leader.
func (s *Server) Join(ctx context.Context, addresses ...string) error {
	return s.peers.Join(ctx, addresses...)
}

// Serve serves calls until Close, and returns nil then. It must be called once.
func (s *Server) Serve() error {
	if !s.start() {
		return nil
	}
	err := s.mux.Serve()
	if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// start starts the work of the server, unless it is closed already.
func (s *Server) start() bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.work.Go(func() { s.peers.Announce(s.ctx) })
	s.work.Go(s.maintain)
	s.work.Go(func() { s.router.Redis.Run(s.ctx) })
	s.work.Go(func() { s.keeper.Run(s.ctx) })
	s.work.Go(func() { _ = s.grpc.Serve(s.mux.GRPC()) }) // ends with the mux
	s.work.Go(func() { _ = s.http.Serve(s.mux.HTTP()) })
	return true
}

// maintain periodically forgets unused sessions and updates the gRPC health service.
func (s *Server) maintain() {
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	for {
		status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if s.admin.Serving(s.ctx) {
			status = grpc_health_v1.HealthCheckResponse_SERVING
		}
		s.health.SetServingStatus("", status)
		s.leases.Sweep()
		s.metrics.Tick(s.router.Node.Topology())
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// Close ends all calls and connections. A leader should transfer its leadership
// first, with Node.Transfer. The node stays open. Leases in efficiency mode stay
// held: their holders renew them through another member.
func (s *Server) Close() error {
	s.starting.Lock()
	s.cancel()
	s.starting.Unlock()
	s.mux.Close()
	s.grpc.Stop()
	err := s.http.Close()
	s.work.Wait()
	return err
}

// unaryErrors converts errors to gRPC statuses.
func (s *Server) unaryErrors(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	return response, wire.ToStatus(s.router.NameLeader(err))
}

func (s *Server) streamErrors(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return wire.ToStatus(s.router.NameLeader(handler(server, stream)))
}
