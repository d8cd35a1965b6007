// Package shopv1 stands for code that protoc generates for a reader's service.
// The recipes of docs/GATES.md compile against it.
package shopv1

import (
	"context"

	"google.golang.org/grpc"
)

// PutOrderRequest is what a client sends.
type PutOrderRequest struct{ Id string }

// PutOrderResponse is what it gets.
type PutOrderResponse struct{}

// OrdersClient is the client of the service.
type OrdersClient interface {
	PutOrder(ctx context.Context, in *PutOrderRequest, options ...grpc.CallOption) (*PutOrderResponse, error)
}
