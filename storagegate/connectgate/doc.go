// Package connectgate provides a Connect interceptor that refuses stale calls, in
// all three protocols of connect-go.
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
// A refusal has the code failed_precondition and the same google.rpc.ErrorInfo
// that grpcgate sends, with resource, token and mark. An invalid token or
// resource is invalid_argument.
//
// Types, in reading order: [ResourceFunc], which names the resource of a call;
// [Gate], the interceptor of a server; [WithToken], [Client] and [Refusal], for
// clients.
package connectgate
