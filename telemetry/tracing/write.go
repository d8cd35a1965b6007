package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate"
)

// Write runs a write under a lease, in a span with the resource and the token of the lease.
// Use it for writes that do not go through a Gate, such as an HTTP request with a token. The
// parent of the span is the span in ctx. Without one it is the span of the acquire, and if it
// belongs to another trace, the span has a link to the acquire.
func (t *Tracer) Write(ctx context.Context, l *lease.Lease, write func(ctx context.Context) error) error {
	var options []trace.SpanStartOption
	if acquire := acquireOf(l.Context()); acquire.SpanContext().IsValid() {
		switch own := trace.SpanContextFromContext(ctx); {
		case !own.IsValid():
			ctx = trace.ContextWithSpan(ctx, acquire)
		case own.TraceID() != acquire.SpanContext().TraceID():
			options = append(options, trace.WithLinks(trace.Link{SpanContext: acquire.SpanContext()}))
		}
	}
	return t.span(ctx, "gate.Write", l.GateResource(), l.Token(), write, options...)
}

// span runs a step at a gate in a span.
func (t *Tracer) span(ctx context.Context, name string, resource fencing.Resource, token fencing.Token,
	step func(context.Context) error,
	options ...trace.SpanStartOption) error {
	ctx, span := t.tracer.Start(ctx, name, append(options, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(ResourceKey.String(string(resource)), TokenKey.Int64(int64(token))))...)
	defer span.End()
	err := step(ctx)
	if !span.IsRecording() {
		return err
	}
	span.SetAttributes(OutcomeKey.String(outcomeOf(err)))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	if stale := (*fencing.StaleError)(nil); errors.As(err, &stale) {
		span.SetAttributes(MarkKey.Int64(int64(stale.Mark)))
	}
	return err
}

// outcomeOf returns "ok", "stale" for a refused token, or "error".
func outcomeOf(err error) string {
	var stale *fencing.StaleError
	var jump *fencing.JumpError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &stale):
		return "stale"
	case errors.As(err, &jump):
		return "jump"
	}
	return "error"
}

// Gate returns a gate that makes a span for each Do and Enter. The span is a child of the
// span in the writer's context: pass the context of the lease, or of the work of Client.Do, to
// see the write in the trace of its acquire.
func Gate[Tx any](t *Tracer, gate storagegate.Gate[Tx]) storagegate.Gate[Tx] {
	return &tracedGate[Tx]{tracer: t, gate: gate}
}

type tracedGate[Tx any] struct {
	tracer *Tracer
	gate   storagegate.Gate[Tx]
}

// Do runs a write in a span.
func (g *tracedGate[Tx]) Do(ctx context.Context, resource fencing.Resource, token fencing.Token,
	write func(tx Tx) error) error {
	return g.tracer.span(ctx, "gate.Write", resource, token, func(ctx context.Context) error {
		return g.gate.Do(ctx, resource, token, write)
	})
}

// Enter raises the mark in a span.
func (g *tracedGate[Tx]) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return g.tracer.span(ctx, "gate.Enter", resource, token, func(ctx context.Context) error {
		return g.gate.Enter(ctx, resource, token)
	})
}

// Mark returns the mark, without a span.
func (g *tracedGate[Tx]) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	return g.gate.Mark(ctx, resource)
}
