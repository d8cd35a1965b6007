// Package grpcgate provides gRPC interceptors that refuse stale calls.
//
// Limits: the interceptor cannot see what the handler writes. If the handler's
// data lives in a storage that has a gate, use that gate in the handler ([Token]
// reads the token, [Error] converts the refusal); the interceptor is then only a
// first filter. Without a storage gate, the interceptor protects data that is
// written through this one process only, and a restart loses marks in memory.
// See package callgate for details.
//
// A unary call holds its resource until its handler returns. A message of a
// stream holds it from the moment the handler receives the message until the
// handler asks for the next one or returns. A handler must write in that time, in
// the goroutine that received the message, and must not write before the first
// message. A stream belongs to the resource that its first message names.
//
// A refusal has the code FAILED_PRECONDITION and a google.rpc.ErrorInfo with
// resource, token and mark. An invalid token or resource is INVALID_ARGUMENT.
//
// Types, in reading order: [ResourceFunc], which names the resource of a call;
// [Gate], the interceptors of a server; [WithToken] and [Refusal], for clients.
package grpcgate
