package grpcgate_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/grpcgate"
)

// The gate takes the resource of a call from its request. The health service
// stands for a service of your own.
func ExampleGate() {
	gate, err := grpcgate.New(callgate.Memory(fencing.Rule{}), func(_ context.Context, _ string,
		message any) (fencing.Resource, error) {
		if request, ok := message.(*healthpb.HealthCheckRequest); ok {
			return fencing.Resource("orders/" + request.Service), nil
		}
		return "", callgate.ErrUngated // other calls only read
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(gate.Unary()), grpc.StreamInterceptor(gate.Stream()))
	service := health.NewServer()
	service.SetServingStatus("42", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		_, err := client.Check(grpcgate.WithToken(context.Background(), token), &healthpb.HealthCheckRequest{Service: "42"})
		fmt.Println(status.Code(err), grpcgate.Refusal(err))
	}
	// Output:
	// OK <nil>
	// FailedPrecondition stale fencing token 33 for "orders/42": 34 has been admitted; the lease is lost, stop writing
}
