// Package httpapi serves the gRPC API as JSON over HTTP, for curl and browsers.
//
// It has no logic of its own: each call runs the method of the gRPC service. A call
// that only the leader can serve is forwarded to it.
//
// Files, in reading order:
//
//   - handler.go: [Handler], its paths, and unary calls.
//   - request.go: what a request must look like, and the status of one that does not.
//   - host.go: which hosts a request may name.
//   - types.go: which field of a request has a value of a wrong type.
//   - pace.go: deadlines for slow clients.
//   - forward.go: how a call reaches the leader.
//   - streams.go: watches, a line of JSON for each message, and snapshot files.
//   - dashboard.go: the web page, and the stream of its data.
//   - json.go: messages as JSON with plain numbers.
package httpapi
