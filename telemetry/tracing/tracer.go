package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// scope names the instrumentation in the spans.
const scope = "github.com/leased-project/leased/telemetry/tracing"

// The keys of the attributes, which the service uses too.
const (
	ResourceKey = attribute.Key("leased.resource") // the names of the locks, separated by commas
	TokenKey    = attribute.Key("leased.token")
	ModeKey     = attribute.Key("leased.mode")
	HolderKey   = attribute.Key("leased.holder")
	OutcomeKey  = attribute.Key("leased.outcome") // "ok", or the code of an error
	VotesKey    = attribute.Key("leased.votes")   // of a round: the Redis nodes that accepted it
	NodesKey    = attribute.Key("leased.nodes")   // of a round: all Redis nodes
	MarkKey     = attribute.Key("leased.mark")    // of a refused write: the gate's mark
)

// Tracer makes the spans of a program. All methods may be called concurrently.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer that uses a provider, or the global one if it is nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Tracer{tracer: provider.Tracer(scope)}
}

// Hooks returns the hooks for lease.WithHooks.
func (t *Tracer) Hooks() lease.Hooks {
	return lease.Hooks{Start: t.start, Waiting: waiting, Acquired: acquired, Failed: failed}
}

// acquireKey is the context key of the span context of an acquire.
type acquireKey struct{}

// start starts the span of an acquire, and passes its context on to the engine.
func (t *Tracer) start(ctx context.Context, resources []fencing.Resource) context.Context {
	ctx, span := t.tracer.Start(ctx, "lease.Acquire", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(ResourceKey.String(joined(resources))))
	if !span.SpanContext().IsValid() { // the provider makes no spans
		return ctx
	}
	onward := &engine.Trace{Parent: traceparent(ctx)}
	if span.IsRecording() {
		onward.Round = func(r engine.Round) { t.round(ctx, r) }
	}
	return engine.WithTrace(context.WithValue(ctx, acquireKey{}, span), onward)
}

// traceparent returns the W3C traceparent of the span in ctx.
func traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// round makes the span of a round of votes of the Redis nodes.
func (t *Tracer) round(ctx context.Context, r engine.Round) {
	_, span := t.tracer.Start(ctx, "redis round", trace.WithTimestamp(r.Began), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(VotesKey.Int(r.Accepted), NodesKey.Int(r.Nodes), OutcomeKey.String(code(r.Err))))
	span.End(trace.WithTimestamp(r.Began.Add(r.Took)))
}

// acquireOf returns the span of the acquire of a lease's context, one that does nothing if there is none.
func acquireOf(ctx context.Context) trace.Span {
	if span, ok := ctx.Value(acquireKey{}).(trace.Span); ok {
		return span
	}
	return noop.Span{}
}

func waiting(ctx context.Context, e lease.Event) {
	if e.Err == nil {
		acquireOf(ctx).AddEvent("queued")
		return
	}
	acquireOf(ctx).AddEvent("retry", trace.WithAttributes(OutcomeKey.String(code(e.Err)),
		attribute.String("error", e.Err.Error())))
}

func acquired(ctx context.Context, e lease.Event) {
	span := acquireOf(ctx)
	span.SetAttributes(TokenKey.Int64(int64(e.Token)), ModeKey.String(e.Mode.String()), HolderKey.String(e.Holder),
		OutcomeKey.String(code(nil)))
	span.End()
}

func failed(ctx context.Context, e lease.Event) {
	span := acquireOf(ctx)
	span.SetAttributes(HolderKey.String(e.Holder), OutcomeKey.String(code(e.Err)))
	if code(e.Err) != "held" { // a lock that another client holds is not a failure
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End()
}

// code returns "ok", or the code of an error.
func code(err error) string {
	if err == nil {
		return "ok"
	}
	return lease.Code(err)
}

func joined(resources []fencing.Resource) string {
	names := make([]string, len(resources))
	for i, name := range resources {
		names[i] = string(name)
	}
	return strings.Join(names, ",")
}
