// Package shopv1 represents code that protoc generates for a service. The recipes
// of docs/GATES-services.md compile against it.
package shopv1

import (
	"context"

	"google.golang.org/grpc"
)

// PutOrderRequest is the request of PutOrder.
type PutOrderRequest struct{ Id string }

// PutOrderResponse is the response of PutOrder.
type PutOrderResponse struct{}

// OrdersClient is the client of the service.
type OrdersClient interface {
	PutOrder(ctx context.Context, in *PutOrderRequest, options ...grpc.CallOption) (*PutOrderResponse, error)
}
