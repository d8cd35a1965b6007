// Package tracing creates spans of the calls that a member serves, and sends them to a
// collector by OTLP over HTTP. Without a collector there is no Tracer: callers use a nil
// *Tracer and a nil *Call, whose methods do nothing.
//
// It does not trace renewals, which are frequent and rarely fail, or calls that change no
// lock.
//
// The nouns, in reading order:
//
//   - [Config], [Tracer]: the connection to the collector.
//   - [Call]: one traced call, with its steps and its rounds of votes.
package tracing
