// Package calls is the way of a call through a member: authentication, rights, limits, the
// request itself, the audit log, metrics and tracing, in this order, whether the call
// comes by gRPC, by HTTP or as an operation of a session stream.
//
// It serves nothing and decodes nothing: a transport passes a function that reads the
// request and one that runs the call. It does not know who owns a lease; the services do.
//
// Files, in reading order:
//
//   - table.go: [Method], and the table with one row for each call.
//   - chain.go: [Chain], which every call passes.
//   - operation.go: the operations of session streams.
//   - grpc.go: gRPC in front of the chain. Package httpapi has HTTP.
package calls
