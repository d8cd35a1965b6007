// Package grpcgate refuses stale calls in front of a gRPC service.
//
// What it does not give: the interceptor cannot see what the handler does.
// Where its data lives in a storage that has a gate of its own, use that gate
// in the handler ([Token] reads the token, [Error] tells the refusal); the
// interceptor is then only a first filter. By itself it protects data that is
// reached through this one process and no other, and with marks in memory a
// restart forgets them. Package callgate says what that means in full.
//
// A unary call has the turn of its resource until its handler returns. A
// message of a stream has it from the moment the handler receives it until the
// handler asks for the next one or returns: a handler must write in that time,
// in the goroutine that received, and must not write before the first message.
// A stream belongs to the resource that its first message names.
//
// A refusal is FAILED_PRECONDITION with a google.rpc.ErrorInfo that names
// resource, token and mark; a bad token or resource is INVALID_ARGUMENT.
//
// The nouns, in reading order: [ResourceFunc], what a call writes to; [Gate],
// the interceptors; [WithToken] and [Refusal], the client's side.
package grpcgate
