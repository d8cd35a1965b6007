package leases

import (
	"context"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/tracing"
)

// traceAcquire starts the span of a unary Acquire. It returns nil if the call is not traced.
func (s *Service) traceAcquire(ctx context.Context, r *pb.AcquireRequest) *tracing.Call {
	if s.Tracer == nil {
		return nil
	}
	names := r.Resources
	if r.Resource != "" {
		names = []string{r.Resource}
	}
	return s.begin(ctx, tracing.Acquire, tracing.ParentOf(ctx), names, r.Holder)
}

// traceRelease starts the span of a unary Release.
func (s *Service) traceRelease(ctx context.Context, r *pb.ReleaseRequest) *tracing.Call {
	if s.Tracer == nil {
		return nil
	}
	var names []string
	if r.Resource != "" {
		names = []string{r.Resource}
	}
	return s.begin(ctx, tracing.Release, tracing.ParentOf(ctx), names, "")
}

// traceOperation starts the span of an operation of a session stream.
func (s *Service) traceOperation(ctx context.Context, op *pb.Operation) *tracing.Call {
	if s.Tracer == nil {
		return nil
	}
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		return s.begin(ctx, tracing.Acquire, op.Traceparent, call.Acquire.GetResources(), call.Acquire.GetHolder())
	case *pb.Operation_Release:
		return s.begin(ctx, tracing.Release, op.Traceparent, call.Release.GetLease().GetResources(), "")
	}
	return nil
}

// begin starts the span of a call on locks that its user may acquire. Other calls are not
// traced: anyone could send any name to the collector.
func (s *Service) begin(ctx context.Context, name, parent string, resources []string, holder string) *tracing.Call {
	for _, resource := range resources {
		if !auth.Can(ctx, auth.Acquire, resource) {
			return nil
		}
	}
	return s.Tracer.Begin(ctx, name, parent, resources, holder)
}
