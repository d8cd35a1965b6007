package main

import (
	"context"
	"regexp"

	"google.golang.org/grpc/metadata"

	"github.com/leased-project/leased/lease/engine"
)

// traceVariable is the environment variable with the W3C traceparent of the span in which
// a command runs. It is a convention of OpenTelemetry: CI systems and shells set it, and
// `leased run` passes it on to its command.
const traceVariable = "TRACEPARENT"

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// withTraceparent returns a context whose calls of the service belong to a trace. Another
// text than a traceparent is ignored.
func withTraceparent(ctx context.Context, text string) context.Context {
	if !traceparentForm.MatchString(text) {
		return ctx
	}
	ctx = engine.WithTrace(ctx, &engine.Trace{Parent: text})
	return metadata.AppendToOutgoingContext(ctx, "traceparent", text)
}
