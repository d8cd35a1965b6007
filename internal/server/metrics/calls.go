package metrics

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/remote/wire"
)

// ok is the code of a call that succeeded.
const ok = "ok"

// services are those whose methods are label values.
var services = []*grpc.ServiceDesc{&pb.LeaseService_ServiceDesc, &pb.PolicyService_ServiceDesc, &pb.RedisService_ServiceDesc,
	&pb.ClusterService_ServiceDesc, &grpc_health_v1.Health_ServiceDesc}

// calls counts the calls of the API.
type calls struct {
	all       *prometheus.CounterVec
	succeeded map[string]prometheus.Counter // by full method
	labels    map[string]string             // by full method
}

func newCalls(r registrar) calls {
	c := calls{all: r.counters("calls_total"), succeeded: map[string]prometheus.Counter{}, labels: map[string]string{}}
	for _, service := range services {
		var names []string
		for i := range service.Methods {
			names = append(names, service.Methods[i].MethodName)
		}
		for i := range service.Streams {
			names = append(names, service.Streams[i].StreamName)
		}
		short := service.ServiceName[strings.LastIndexByte(service.ServiceName, '.')+1:]
		for _, name := range names {
			full, label := "/"+service.ServiceName+"/"+name, short+"/"+name
			c.labels[full] = label
			c.succeeded[full] = c.all.WithLabelValues(label, ok)
		}
	}
	return c
}

// Called records a call of a gRPC method, by gRPC or HTTP. A method that does not exist
// counts as other.
func (m *Metrics) Called(method string, err error) {
	if m == nil {
		return
	}
	if c := m.calls.succeeded[method]; c != nil && err == nil {
		c.Inc()
		return
	}
	label, known := m.calls.labels[method]
	if !known {
		label = other
	}
	code := ok
	if err != nil {
		code = CodeOf(err)
	}
	m.calls.all.WithLabelValues(label, code).Inc()
}

// CodeOf returns the error code of a call as its caller sees it.
func CodeOf(err error) string {
	code := wire.KindOf(err).Code
	if code == wire.CodeUnavailable && routing.IsNotLeader(err) { // the leader was not added to it yet
		return wire.CodeNotLeader
	}
	return code
}

// UnaryInterceptor records unary gRPC calls.
func (m *Metrics) UnaryInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	m.Called(info.FullMethod, err)
	return response, err
}

// StreamInterceptor records gRPC streams when they end.
func (m *Metrics) StreamInterceptor(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(server, stream)
	m.Called(info.FullMethod, err)
	return err
}
