package connectgate_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/connectgate"
)

// The gate takes the resource of a call from its request.
func ExampleGate() {
	gate, err := connectgate.New(callgate.Memory(fencing.Rule{}), func(_ context.Context, _ connect.Spec,
		message any) (fencing.Resource, error) {
		if order, ok := message.(*wrapperspb.StringValue); ok {
			return fencing.Resource("orders/" + order.Value), nil
		}
		return "", callgate.ErrUngated // other calls only read
	})
	if err != nil {
		log.Fatal(err)
	}
	const procedure = "/shop.v1.Orders/Pay"
	pay := func(_ context.Context, request *connect.Request[wrapperspb.StringValue]) (*connect.Response[emptypb.Empty],
		error) {
		fmt.Println("paid order", request.Msg.Value)
		return connect.NewResponse(&emptypb.Empty{}), nil
	}
	server := httptest.NewServer(connect.NewUnaryHandler(procedure, pay, connect.WithInterceptors(gate)))
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, emptypb.Empty](server.Client(), server.URL+procedure,
		connect.WithInterceptors(connectgate.Client()))
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		_, err := client.CallUnary(connectgate.WithToken(context.Background(), token),
			connect.NewRequest(wrapperspb.String("42")))
		fmt.Println(connectgate.Refusal(err))
	}
	// Output:
	// paid order 42
	// <nil>
	// stale fencing token 33 for "orders/42": 34 has been admitted; the lease is lost, stop writing
}
