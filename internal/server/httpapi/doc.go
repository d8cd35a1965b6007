// Package httpapi serves the gRPC API as JSON over HTTP, for curl and browsers.
//
// It has no logic: each call passes the chain of package calls, and runs the method of the
// gRPC service. A call that only the leader can serve is forwarded to it.
//
// Files, in reading order:
//
//   - handler.go: [Handler] and its paths.
//   - exchange.go: a unary call, and how a call reaches the leader.
//   - streams.go: watches, a line of JSON for each message, and snapshot files.
//   - request.go: what a request must look like, and the status of one that does not.
//   - host.go: which hosts a request may name.
//   - types.go: which field of a request has a value of a wrong type.
//   - pace.go: deadlines for slow clients.
//   - json.go: messages as JSON with plain numbers.
//   - probes.go: [Probes], whether the member is alive and ready, for process supervisors
//     and load balancers; probeserver.go: a server of them and the metrics for a separate port.
//
// Probes need no user and no certificate. Their answers contain whether the member can
// serve and why not, and nothing about locks, sessions or users.
package httpapi
