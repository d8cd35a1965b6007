// Package shopv1connect represents code that protoc generates for a service. The
// recipes of docs/GATES-services.md compile against it.
package shopv1connect

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/leased-project/leased/storagegate/recipes/testdata/shopv1"
)

const putOrder = "/shop.v1.Orders/PutOrder"

// OrdersHandler is the interface of the service.
type OrdersHandler interface {
	PutOrder(ctx context.Context,
		request *connect.Request[shopv1.PutOrderRequest]) (*connect.Response[shopv1.PutOrderResponse], error)
}

// NewOrdersHandler returns the path of the service and its handler.
func NewOrdersHandler(service OrdersHandler, options ...connect.HandlerOption) (string, http.Handler) {
	return "/shop.v1.Orders/", connect.NewUnaryHandler(putOrder, service.PutOrder, options...)
}

// OrdersClient is a client of the service.
type OrdersClient struct {
	putOrder *connect.Client[shopv1.PutOrderRequest, shopv1.PutOrderResponse]
}

// NewOrdersClient returns a client of the service at url.
func NewOrdersClient(client connect.HTTPClient, url string, options ...connect.ClientOption) *OrdersClient {
	return &OrdersClient{connect.NewClient[shopv1.PutOrderRequest, shopv1.PutOrderResponse](client, url+putOrder,
		options...)}
}

// PutOrder calls the service.
func (c *OrdersClient) PutOrder(ctx context.Context,
	request *connect.Request[shopv1.PutOrderRequest]) (*connect.Response[shopv1.PutOrderResponse], error) {
	return c.putOrder.CallUnary(ctx, request)
}
