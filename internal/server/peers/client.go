package peers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// reachTimeout bounds the time until another member answers at all.
const reachTimeout = 5 * time.Second

// Client calls the APIs of other members.
type Client struct {
	// Router knows this member and the leader.
	Router *routing.Router
	// TLS returns the TLS configuration for other members, or nil for none.
	TLS func() *tls.Config
	// Secret returns the secret that this member authenticates with, or "".
	Secret func() string
}

// dial connects to the API of another member for the duration of use.
func (c *Client) dial(address string, use func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(c.TLS(), c.Secret())...)
	if err != nil {
		return fmt.Errorf("dial member at %s: %w", address, err)
	}
	defer conn.Close()
	return use(conn)
}

// Ping returns an error if no member answers at an address.
func (c *Client) Ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := c.dial(address, func(conn *grpc.ClientConn) error {
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
func (c *Client) Transport(secrets bool) *http.Transport {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialer := &net.Dialer{Timeout: reachTimeout}
		if config := c.TLS(); config != nil {
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
	return &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
}

// Status returns the state of the member at an address.
func (c *Client) Status(ctx context.Context, address string) (status *pb.StatusResponse, err error) {
	err = c.dial(address, func(conn *grpc.ClientConn) error {
		status, err = pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
		return err
	})
	return status, wire.FromStatus(err)
}
