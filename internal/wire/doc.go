// Package wire converts the types of package engine to messages of the API and back.
// Client and server share it, so that an error means the same on both sides.
//
// It does not validate requests: a server validates what it decodes.
//
// The files: kind.go (the table of errors with their codes, statuses and hints),
// errors.go (encodes and decodes errors), convert.go and topology.go (requests,
// statuses, leases, policies), operation.go and answer.go (the messages of the session
// stream that a client encodes and decodes often, without building messages).
package wire

// Window is the flow-control window of a gRPC connection and of each of its streams, in
// bytes. It is static: to size windows by itself, grpc-go sends a ping with most messages.
const Window = 1 << 20
