package tracing

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// maxRounds bounds the spans for voting rounds of one call that waits for long. Later
// rounds are counted, and the round that grants the lease always has a span.
const maxRounds = 16

// The names of the spans of calls.
const (
	Acquire = "leased.Acquire"
	Release = "leased.Release"
)

// The names of the steps of a call.
const (
	// Session: a session is opened or found.
	Session = "session"
	// Commit: the request waits for a batch, and the batch is committed to the log.
	Commit = "commit"
	// Queue: the request waits for the lock.
	Queue = "queue"
)

// Call is one traced call. A nil Call does nothing. All methods may be called concurrently.
type Call struct {
	tracer trace.Tracer
	ctx    context.Context // with the span of the call
	span   trace.Span

	mu     sync.Mutex
	inner  context.Context // with the span of the current step
	step   trace.Span      // nil if no step has begun
	rounds int
	ended  bool
}

// propagator reads and writes a W3C traceparent.
var propagator propagation.TraceContext

// callKey is the key of the Call in a context.
type callKey struct{}

// WithCall returns a context that carries a call, for CallOf.
func WithCall(ctx context.Context, c *Call) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, c)
}

// CallOf returns the call of a context, nil if it is not traced.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Header is the HTTP header, and the gRPC metadata, with the W3C traceparent of a caller.
const Header = "Traceparent"

// Begin starts the span of a call. parent is a W3C traceparent, or empty. It returns nil for
// a call that is not sampled.
func (t *Tracer) Begin(ctx context.Context, name, parent string, resources []string, holder string) *Call {
	if t == nil {
		return nil
	}
	if parent != "" {
		ctx = propagator.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return nil
	}
	if len(resources) > 0 {
		span.SetAttributes(attribute.String("leased.resource", strings.Join(resources, ",")))
	}
	if holder != "" {
		span.SetAttributes(attribute.String("leased.holder", holder))
	}
	return &Call{tracer: t.tracer, ctx: ctx, span: span, inner: ctx}
}

// Step ends the current step of the call and begins the next one.
func (c *Call) Step(name string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if c.step != nil {
		c.step.End()
	}
	c.inner, c.step = c.tracer.Start(c.ctx, name)
}

// WithRounds returns a context whose acquires report their rounds of votes to the call.
func (c *Call) WithRounds(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return engine.WithTrace(ctx, &engine.Trace{Round: c.round})
}

// round adds the span of a round of votes.
func (c *Call) round(r engine.Round) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rounds++
	if c.ended || c.rounds > maxRounds && r.Err != nil {
		return
	}
	_, span := c.tracer.Start(c.inner, "redis round", trace.WithTimestamp(r.Began), trace.WithAttributes(
		attribute.Int("leased.votes", r.Accepted), attribute.Int("leased.nodes", r.Nodes), attribute.String("leased.outcome",
			outcome(r.Err))))
	span.End(trace.WithTimestamp(r.Began.Add(r.Took)))
}

// End ends the call. token and mode are those of the grant, 0 and empty if there is none.
func (c *Call) End(token uint64, mode string, err error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if c.step != nil {
		c.step.End()
	}
	if token != 0 {
		c.span.SetAttributes(attribute.Int64("leased.token", int64(token)))
	}
	if mode != "" {
		c.span.SetAttributes(attribute.String("leased.mode", mode))
	}
	if c.rounds > 0 {
		c.span.SetAttributes(attribute.Int("leased.rounds", c.rounds))
	}
	c.span.SetAttributes(attribute.String("leased.outcome", outcome(err)))
	if err != nil && !errors.Is(err, engine.ErrHeld) { // a lock that another client holds is not a failure
		c.span.SetStatus(codes.Error, err.Error())
	}
	c.span.End()
}

// outcome returns "ok", or the code of an error.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return wire.KindOf(err).Code
}
