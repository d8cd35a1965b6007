package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// DefaultTimeout bounds the search for a member that can serve a call. It is longer than a
// few leader elections.
const DefaultTimeout = 5 * time.Second

// Backend is an engine.RoutedBackend over the API of a service. Its other methods are for
// locks in correctness mode; Efficiency returns the backend for locks in efficiency mode. All
// methods may be called concurrently. Close it when done.
type Backend struct {
	*connector // to the leader
	topology   *topologyWatch
	efficiency *Efficiency
}

// settings say how to reach the members.
type settings struct {
	*clientcore.Members
	Config
	endpoints []string
	clock     engine.Clock
	unused    pendings
	requested atomic.Bool // a member has asked for a client certificate, and TLS has none
}

// memberTime returns how long one member that is not silent may take for an answer. It
// leaves time for another member within the same call.
func (s *settings) memberTime() time.Duration { return s.Timeout * 3 / 5 }

var _ engine.RoutedBackend = (*Backend)(nil)

// Config configures a Backend.
type Config struct {
	TLS     *tls.Config       // of the connections, used unchanged; nil for none
	Secret  string            // from `leased user add`, sent only over TLS or to a loopback address; empty for none
	Timeout time.Duration     // DefaultTimeout if 0
	Dial    []grpc.DialOption // of every connection; an interceptor of the session stream sees encoded messages
}

// New returns a Backend for a service whose members have these API addresses, such
// as "10.0.0.1:7420". One address is enough; with more, the Backend tolerates
// members that are down. It connects on first use.
func New(endpoints []string, config Config) (*Backend, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("%w: there are no endpoints; give the address of a member, such as \"127.0.0.1:7420\"",
			engine.ErrInvalid)
	}
	if config.Timeout < 0 {
		return nil, fmt.Errorf("%w: timeout (%v) must be above 0", engine.ErrInvalid, config.Timeout)
	}
	if config.Secret != "" {
		if err := secret.Check(config.Secret); err != nil {
			return nil, fmt.Errorf("%w: %w", engine.ErrInvalid, err)
		}
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	endpoints = slices.Clone(endpoints)
	s := &settings{Members: clientcore.NewMembers(endpoints), Config: config, endpoints: endpoints,
		clock: engine.MonotonicClock()}
	for _, address := range endpoints {
		if err := secret.CheckAddress(address, s.TLS, s.Secret); err != nil {
			return nil, fmt.Errorf("%w: %w", engine.ErrInvalid, err)
		}
	}
	s.noticeRequests()
	efficiency := newConnector(s, rand.N(len(endpoints)))
	efficiency.anyMember = true
	watch := &topologyWatch{settings: s, changed: make(chan struct{}), rejected: map[string]error{}, restart: func() {}}
	watch.ctx, watch.cancel = context.WithCancel(context.Background())
	return &Backend{connector: newConnector(s, 0), topology: watch, efficiency: &Efficiency{efficiency}}, nil
}

// noticeRequests notices that a member asks for a client certificate if the configuration has none. With
// TLS 1.3 the client learns that it lacks one only from an alert, which may be lost.
func (s *settings) noticeRequests() {
	if s.TLS == nil || len(s.TLS.Certificates) > 0 || s.TLS.GetClientCertificate != nil {
		return
	}
	s.TLS = s.TLS.Clone()
	s.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		s.requested.Store(true)
		return &tls.Certificate{}, nil // none
	}
}

// Close closes the connections. Sessions that were not closed end with their TTL.
func (b *Backend) Close() error {
	b.topology.close()
	b.connector.close()
	b.efficiency.close()
	return nil
}

// Efficiency returns the backend for locks in efficiency mode.
func (b *Backend) Efficiency() *Efficiency { return b.efficiency }

var errClosed = fmt.Errorf("%w: the backend is closed", engine.ErrUnavailable)

// errLeft ends a connection to a member that cannot serve, with the operations that wait there.
var errLeft = errors.New("another member is used from now on")

// maxAnswer bounds one message of a member. The answer to an attach names all leases of
// a session.
const maxAnswer = 64 << 20

// program names this library and its version to the service.
var program = sync.OnceValue(func() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "github.com/leased-project/leased" {
				version = m.Version
			}
		}
	}
	return "leased-go/" + cmp.Or(version, "unknown")
})

// newConn returns a connection to a member. gRPC connects on first use.
func (s *settings) newConn(address string) (*grpc.ClientConn, error) {
	options := append(secret.DialOptions(s.TLS, s.Secret), grpc.WithNoProxy(), grpc.WithUserAgent(program()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithInitialWindowSize(wire.Window), grpc.WithInitialConnWindowSize(wire.Window))
	return grpc.NewClient("passthrough:///"+address, append(options, s.Dial...)...)
}
