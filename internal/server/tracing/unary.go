package tracing

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// Header is the name of the HTTP header, and of the gRPC metadata, with the W3C traceparent
// of a caller.
const Header = "traceparent"

// The names of the spans of calls.
const (
	AcquireSpan = "leased.Acquire"
	ReleaseSpan = "leased.Release"
)

// UnaryInterceptor traces Acquire and Release, by gRPC and by HTTP. An HTTP handler puts the
// traceparent of its caller into the context, with engine.WithTrace.
func (t *Tracer) UnaryInterceptor(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	var c *Call
	switch r := request.(type) {
	case *pb.AcquireRequest:
		names := r.Resources
		if r.Resource != "" {
			names = []string{r.Resource}
		}
		c = t.Begin(ctx, AcquireSpan, parentOf(ctx), names, r.Holder)
	case *pb.ReleaseRequest:
		c = t.Begin(ctx, ReleaseSpan, parentOf(ctx), []string{r.Resource}, "")
	}
	if c == nil {
		return handler(ctx, request)
	}
	response, err := handler(context.WithValue(ctx, callKey{}, c), request)
	switch r := response.(type) {
	case *pb.AcquireResponse:
		c.End(r.GetToken(), r.GetMode(), err)
	default:
		released, _ := request.(*pb.ReleaseRequest)
		c.End(released.GetToken(), "", err)
	}
	return response, err
}

// parentOf returns the traceparent of a caller, empty if there is none.
func parentOf(ctx context.Context) string {
	if parent := engine.TraceparentOf(ctx); parent != "" {
		return parent
	}
	if values := metadata.ValueFromIncomingContext(ctx, Header); len(values) > 0 {
		return values[0]
	}
	return ""
}
