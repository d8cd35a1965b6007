package routing

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// reachTimeout bounds the time until another member answers at all.
const reachTimeout = 5 * time.Second

// maxIdleConns bounds the connections to another member that wait for the next call to forward. A log entry answers
// many calls at once, and connections beyond the bound would be closed and dialled again for each of them.
const maxIdleConns = 1024

// dial connects to the API of another member for the duration of use.
func (r *Router) dial(address string, use func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(r.PeerTLS(), r.Secret())...)
	if err != nil {
		return fmt.Errorf("dial member at %s: %w", address, err)
	}
	defer conn.Close()
	return use(conn)
}

// Ping returns an error if no member answers at an address.
func (r *Router) Ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := r.dial(address, func(conn *grpc.ClientConn) error {
		_, err := pb.NewClusterServiceClient(conn).Health(ctx, &pb.HealthRequest{})
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: no member answers at %s: %w", engine.ErrUnavailable, address, err)
	}
	return nil
}

// Transport returns an HTTP transport to other members. Requests use the scheme
// http; the transport adds TLS if it is configured. With secrets set, requests carry
// the secrets of users, and the transport refuses to send them in the clear beyond
// this machine.
func (r *Router) Transport(secrets bool) *http.Transport {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialer := &net.Dialer{Timeout: reachTimeout}
		if config := r.PeerTLS(); config != nil {
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil || !secrets {
			return conn, err
		}
		if err := secret.CheckConn(conn); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
	return &http.Transport{DialContext: dial, MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: time.Minute}
}

// Status returns the state of the member at an address.
func (r *Router) Status(ctx context.Context, address string) (status *pb.StatusResponse, err error) {
	err = r.dial(address, func(conn *grpc.ClientConn) error {
		status, err = pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
		return err
	})
	return status, wire.FromStatus(err)
}
