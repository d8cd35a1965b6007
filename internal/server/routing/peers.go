package routing

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// reachTimeout bounds the time until another member answers at all.
const reachTimeout = 5 * time.Second

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

// Status returns the state of the member at an address.
func (r *Router) Status(ctx context.Context, address string) (status *pb.StatusResponse, err error) {
	err = r.dial(address, func(conn *grpc.ClientConn) error {
		status, err = pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
		return err
	})
	return status, wire.FromStatus(err)
}
