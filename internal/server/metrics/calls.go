package metrics

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
)

// ok is the code of a call that succeeded.
const ok = "ok"

// services are those whose methods are label values.
var services = []*grpc.ServiceDesc{&pb.LeaseService_ServiceDesc, &pb.PolicyService_ServiceDesc,
	&pb.RedisService_ServiceDesc,
	&pb.ClusterService_ServiceDesc, &grpc_health_v1.Health_ServiceDesc}

// calls counts the calls of the API.
type calls struct {
	all    *prometheus.CounterVec
	labels map[string]string // by full method
}

func newCalls(r registrar) calls {
	c := calls{all: r.counters("calls_total"), labels: map[string]string{}}
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
			c.all.WithLabelValues(label, ok) // Prometheus does not see the first increase of a series that appears with it
		}
	}
	return c
}

// Called records a call of a gRPC method, by gRPC or HTTP. An error of a path that is not a
// method counts as other.
func (m *Metrics) Called(method string, err error) {
	label, known := m.calls.labels[method]
	code := ok
	switch {
	case err != nil:
		code = CodeOf(err)
	case !known:
		return
	}
	m.calls.all.WithLabelValues(cmp.Or(label, other), code).Inc()
}

// CodeOf returns the error code of a call as its caller sees it.
func CodeOf(err error) string {
	code := wire.KindOf(err).Code
	if code == wire.CodeUnavailable && routing.IsNotLeader(err) { // the leader was not added to it yet
		return wire.CodeNotLeader
	}
	return code
}
