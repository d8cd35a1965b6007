// Package tracing creates OpenTelemetry spans of what a program does with locks and gates, so
// that one trace shows an acquire, what the service did for it, and the writes under the
// lease.
//
//   - [Tracer.Hooks] gives a lease.Client a span for each Acquire. The service continues the
//     trace: it receives the span's context with the request.
//   - [Tracer.Write] and [Gate] make a span for each write through a gate, with the resource and the
//     token.
//
// The span of an acquire is in the context of its lease, and in the context of the work of
// Client.Do. Spans that start from those contexts, such as a write through a Gate, are
// children of the acquire: the token of the write is the result of the acquire, and a trace
// must show both even if the program has no span of its own. [Tracer.Write] also accepts a
// context with another span. That span is then the parent, and a link points to the acquire.
//
// The package uses the TracerProvider that the program gives it, and no exporter. It makes no
// spans for renewals.
package tracing
