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
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/dashboard"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/server/leases"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/observe"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// maxStreams bounds the concurrent calls of one gRPC connection. Further calls wait
	// in the client.
	maxStreams = 1000
	// maxHeader bounds the headers of a call.
	maxHeader = 16 << 10
	// readBuffer and writeBuffer are the sizes of the buffers of a gRPC connection. An idle
	// connection keeps its read buffer, and a write buffer returns to a pool only after the write, so
	// that many heartbeats at once need many. gRPC's 32 KiB would be most of the memory of an idle
	// session. Larger messages cost more system calls, but have many operations.
	readBuffer, writeBuffer = 2 << 10, 8 << 10
	// maintenanceInterval is the time between two runs of maintain.
	maintenanceInterval = time.Second
	// headerTimeout bounds the time until the headers of an HTTP request, or the first
	// frames of a gRPC connection, are read.
	headerTimeout = 10 * time.Second
)

// Server is the API of one member. Serve runs it, Close ends it.
type Server struct {
	router    *routing.Router
	forwarder *routing.Forwarder
	keeper    *fleet.Keeper
	chain     *calls.Chain
	admin     *admin.Service
	mux       *portMux
	grpc      *grpc.Server
	http      *http.Server
	health    *health.Server
	// keepTimes keeps the file of the times of grants up to date until ctx ends.
	keepTimes func()

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// starting is held while Serve starts the work and while Close ends it: no work starts after Close.
	starting sync.Mutex
	work     sync.WaitGroup
}

// leaseService is leased.v1.LeaseService.
type leaseService struct {
	pb.UnsafeLeaseServiceServer
	*leases.Service
	*observeService
}

type observeService = observe.Service

// New opens the Raft node of a member and returns its Server on a listener. Close closes
// both. Without TLS the listener must have a loopback address.
func New(config Config, listener net.Listener) (*Server, error) {
	config, err := config.filled()
	if err != nil {
		return nil, err
	}
	if err := CheckAddress(listener.Addr().String(), config.TLS); err != nil {
		return nil, err
	}
	recorder := observe.NewRecorder(engine.MonotonicClock())
	if err := recorder.Load(config.TimesFile); err != nil { // nothing but the display depends on it
		config.Logger.Warn("the times of earlier grants are unknown", "error", err)
	}
	config.Raft.Observer, config.Raft.Times, config.Raft.Hooks = recorder, recorder, config.Metrics.RaftHooks()
	node, err := raftstore.Open(config.Raft)
	if err != nil {
		return nil, err
	}
	s, err := newServer(config, listener, node, recorder)
	if err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return s, nil
}

// newServer returns the Server of an open node.
func newServer(config Config, listener net.Listener, node *raftstore.Node,
	recorder *observe.Recorder) (*Server, error) {
	if config.Advertise == "" {
		config.Advertise = listener.Addr().String()
	}
	backend, err := raftstore.NewBackend(node)
	if err != nil {
		return nil, err
	}
	redis := fleet.NewConnection(node, config.RedisOptions, config.Metrics.RedisHooks(), config.Logger)
	redis.NodeTimeout = config.RedisTimeout
	s := &Server{mux: newPortMux(listener, config.TLS, config.Limits.Connections), health: health.NewServer(),
		router: &routing.Router{Node: node, Raft: backend, Redis: redis, Clock: config.Clock, Address: config.Advertise,
			PeerTLS: config.PeerTLS, Secret: config.Secret},
		keeper: fleet.NewKeeper(node, redis, config.Redis, config.Clock, config.Logger)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	node.SetLimits(config.Limits.Cluster)
	s.chain = &calls.Chain{Router: s.router, Users: config.Users, Audit: config.Audit,
		Limits: limits.NewAccounts(config.Limits, config.Clock), Metrics: config.Metrics, Tracer: config.Tracer,
		CloseLater: s.mux.closeLater}
	s.admin = &admin.Service{Router: s.router, Keeper: s.keeper, FilePolicies: config.FilePolicies,
		Version: config.Version}
	config.Metrics.Observe(metrics.Source{Node: node, Redis: redis.Backend, Certificates: config.Certificates,
		LostAuditLines: config.Audit.Lost})
	recorder.OnEnded(func(e *machine.Event) {
		if node.Leads() {
			config.Audit.Ended(e)
		}
	})
	s.keepTimes = func() { recorder.KeepSaved(s.ctx, config.TimesFile, config.Logger) }
	s.register(config, leaseService{nil,
		leases.New(s.chain, recorder, leases.Signing{Signer: config.Signer, TTL: config.SignatureTTL}),
		observe.NewService(s.router, recorder, config.Metrics)})
	return s, nil
}

// register offers the services to gRPC and HTTP.
func (s *Server) register(config Config, leaseAPI leaseService) {
	s.grpc = grpc.NewServer(grpc.Creds(auth.TransportCredentials()), grpc.MaxRecvMsgSize(limits.MaxMessage),
		grpc.StaticStreamWindowSize(wire.Window), grpc.StaticConnWindowSize(wire.Window),
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeader), grpc.ConnectionTimeout(headerTimeout),
		grpc.UnaryInterceptor(s.chain.UnaryInterceptor), grpc.StreamInterceptor(s.chain.StreamInterceptor),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second,
			MaxConnectionIdle: config.Limits.IdleTimeout}))
	services := []httpapi.Service{
		{Desc: &pb.LeaseService_ServiceDesc, Impl: leaseAPI}, {Desc: &pb.PolicyService_ServiceDesc, Impl: s.admin},
		{Desc: &pb.RedisService_ServiceDesc, Impl: s.admin}, {Desc: &pb.ClusterService_ServiceDesc, Impl: s.admin}}
	for _, service := range services {
		s.grpc.RegisterService(service.Desc, service.Impl)
	}
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.forwarder = routing.NewForwarder(s.router, config.Users != nil)
	handler := httpapi.New(httpapi.Config{Chain: s.chain, Services: services, Probes: s.Ready, Forwarder: s.forwarder,
		Dashboard: dashboard.New(s.chain, leaseAPI, s.admin, httpapi.Encode)})
	s.http = &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: config.Limits.IdleTimeout,
		MaxHeaderBytes: maxHeader, BaseContext: func(net.Listener) context.Context { return s.ctx }}
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
	return s.router.Join(ctx, addresses...)
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
	s.work.Go(func() { s.router.Announce(s.ctx) })
	s.work.Go(s.maintain)
	s.work.Go(s.keepTimes)
	s.work.Go(func() { s.router.Redis.Run(s.ctx) })
	s.work.Go(func() { s.keeper.Run(s.ctx) })
	s.work.Go(func() { _ = s.grpc.Serve(s.mux.grpc) }) // ends with the mux
	s.work.Go(func() { _ = s.http.Serve(s.mux.http) })
	return true
}

// maintain periodically updates the gRPC health service and the metrics.
func (s *Server) maintain() {
	for {
		status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if s.admin.Serving(s.ctx) {
			status = grpc_health_v1.HealthCheckResponse_SERVING
		}
		s.health.SetServingStatus("", status)
		s.chain.Metrics.Tick(s.router.Node.Topology())
		if engine.Sleep(s.ctx, maintenanceInterval) != nil {
			return
		}
	}
}

// Node returns the Raft node of this member.
func (s *Server) Node() *raftstore.Node { return s.router.Node }

// Close ends all calls and connections, and closes the node. A leader should transfer its
// leadership first, with Node.Transfer. Leases in efficiency mode stay held: their holders
// renew them through another member.
func (s *Server) Close() error {
	s.starting.Lock()
	s.cancel()
	s.starting.Unlock()
	s.mux.Close()
	s.grpc.Stop()
	err := s.http.Close()
	s.forwarder.Close()
	s.work.Wait()
	return errors.Join(err, s.router.Node.Close())
}
