// Package connectgate refuses stale calls in front of a Connect service, in all
// three protocols that connect-go speaks.
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
// A refusal is failed_precondition with a google.rpc.ErrorInfo that names
// resource, token and mark, the same that grpcgate sends; a bad token or
// resource is invalid_argument.
//
// The nouns, in reading order: [ResourceFunc], what a call writes to; [Gate],
// the interceptor of a server; [WithToken], [Client] and [Refusal], the
// client's side.
package connectgate
