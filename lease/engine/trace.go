package engine

import (
	"context"
	"time"
)

// Trace is what a program that traces its calls adds to the context of an acquire. Engines
// know no tracing library: they pass Parent on, and report their rounds.
type Trace struct {
	// Parent identifies the span of the caller, as a W3C traceparent. Empty means none.
	Parent string
	// Round, if not nil, is called after each round of votes of an engine that has them. It
	// may be called from any goroutine and must not block.
	Round func(Round)
}

// Round is one attempt of an engine to get the votes of a quorum of its nodes.
type Round struct {
	Began    time.Time
	Took     time.Duration
	Accepted int // votes for the attempt
	Nodes    int
	Err      error // why it was not granted, nil if it was
}

type traceKey struct{}

// WithTrace returns a context for calls of an engine that belong to a trace.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the Trace of WithTrace, nil if there is none.
func TraceOf(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

// TraceparentOf returns the parent of the Trace in ctx, empty if there is none.
func TraceparentOf(ctx context.Context) string {
	if t := TraceOf(ctx); t != nil {
		return t.Parent
	}
	return ""
}
