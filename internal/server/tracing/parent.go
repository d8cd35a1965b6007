package tracing

import (
	"context"
	"net/http"

	"google.golang.org/grpc/metadata"

	"github.com/leased-project/leased/lease/engine"
)

// header is the HTTP header, and the gRPC metadata, with the W3C traceparent of a caller.
const header = "Traceparent"

// FromHTTP returns a context with the traceparent of an HTTP request, for ParentOf.
func FromHTTP(ctx context.Context, r *http.Request) context.Context {
	if parent := r.Header.Get(header); parent != "" {
		return engine.WithTrace(ctx, &engine.Trace{Parent: parent})
	}
	return ctx
}

// ParentOf returns the traceparent of the caller of a unary call, empty if there is none.
func ParentOf(ctx context.Context) string {
	if parent := engine.TraceparentOf(ctx); parent != "" {
		return parent
	}
	if values := metadata.ValueFromIncomingContext(ctx, header); len(values) > 0 {
		return values[0]
	}
	return ""
}
