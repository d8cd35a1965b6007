package routing

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// reachTimeout bounds the time until another member answers at all.
const reachTimeout = 5 * time.Second

// call makes a unary call of the member at an address, over a new connection. It returns the status as gRPC does.
func (r *Router) call(ctx context.Context, address, method string, request, response proto.Message) error {
	conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(r.PeerTLS(), r.Secret())...)
	if err != nil {
		return fmt.Errorf("dial member at %s: %w", address, err)
	}
	defer conn.Close()
	return conn.Invoke(ctx, method, request, response)
}

// Ping returns an error if no member answers at an address.
func (r *Router) Ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := r.call(ctx, address, pb.ClusterService_Health_FullMethodName, &pb.HealthRequest{}, &pb.HealthResponse{})
	if err != nil {
		return fmt.Errorf("%w: no member answers at %s: %w", engine.ErrUnavailable, address, err)
	}
	return nil
}

// Status returns the state of the member at an address.
func (r *Router) Status(ctx context.Context, address string) (*pb.StatusResponse, error) {
	status := &pb.StatusResponse{}
	err := r.call(ctx, address, pb.ClusterService_Status_FullMethodName, &pb.StatusRequest{}, status)
	return status, wire.FromStatus(err)
}
