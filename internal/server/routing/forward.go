package routing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
)

// maxCalls limits the concurrent calls on one connection. It is lower than the server's limit on concurrent streams,
// above which gRPC queues calls: a release could be stuck behind acquires that wait for the same lock.
const maxCalls = 500

// Forwarder forwards calls to other members. Concurrent calls share a connection, which saves system calls.
type Forwarder struct {
	router  *Router
	secrets bool

	mu    sync.Mutex
	conns map[string][]*peerConn // by address
}

// peerConn is a connection, and the number of its calls.
type peerConn struct {
	*grpc.ClientConn
	calls int
}

// NewForwarder returns a Forwarder. With secrets set, calls carry the secrets of
// users, and it refuses to send them in the clear beyond this machine.
func NewForwarder(r *Router, secrets bool) *Forwarder {
	return &Forwarder{router: r, secrets: secrets, conns: map[string][]*peerConn{}}
}

// Dial connects to another member for HTTP, with TLS if it is configured. Errors match ErrNotReached.
func (f *Forwarder) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := f.dial(ctx, address, "http/1.1")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReached, err)
	}
	return conn, nil
}

// dial connects to another member, and tells it the protocol.
func (f *Forwarder) dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: reachTimeout}
	if config := f.router.PeerTLS(); config != nil {
		config = config.Clone()
		config.NextProtos = []string{protocol}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil || !f.secrets {
		return conn, err
	}
	if err := secret.CheckConn(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// ErrNotReached means that there was no connection to the member, so the call was not sent.
var ErrNotReached = errors.New("the member cannot be reached")

// Call makes a unary call of the member at an address. It returns the status as gRPC does, or ErrNotReached.
func (f *Forwarder) Call(ctx context.Context, address, method string, request, response proto.Message) error {
	conn, err := f.take(address)
	if err != nil {
		return err
	}
	defer f.put(conn)
	var reached peer.Peer // set if the call was assigned a connection
	err = conn.Invoke(ctx, method, request, response, grpc.Peer(&reached))
	if err != nil && reached.Addr == nil { // also if ctx has ended before there was a connection
		return fmt.Errorf("%w: %s", ErrNotReached, status.Convert(err).Message())
	}
	return err
}

// take returns a connection with fewer calls than maxCalls.
func (f *Forwarder) take(address string) (*peerConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns[address] {
		if c.calls < maxCalls {
			c.calls++
			return c, nil
		}
	}
	// A member that is not reachable is tried again soon: it may be the leader that was just restarted.
	retries := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
		MaxDelay: 200 * time.Millisecond}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // dial adds TLS
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return f.dial(ctx, address, "h2")
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retries, MinConnectTimeout: reachTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
		grpc.WithIdleTimeout(time.Minute), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithStaticStreamWindowSize(wire.Window), grpc.WithStaticConnWindowSize(wire.Window))
	if err != nil {
		return nil, err
	}
	c := &peerConn{ClientConn: conn, calls: 1}
	f.conns[address] = append(f.conns[address], c)
	return c, nil
}

// put ends a call.
func (f *Forwarder) put(c *peerConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.calls--
}

// Close closes the connections.
func (f *Forwarder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conns := range f.conns {
		for _, c := range conns {
			c.Close() // it always succeeds the first time
		}
	}
	clear(f.conns)
}
