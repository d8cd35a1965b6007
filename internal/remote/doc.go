// Package remote is the client side of the API of a leased service: one engine
// backend for locks in correctness mode and one for locks in efficiency mode.
// Programs use package client, which chooses between them.
//
// It does not retry. Each call is one try: it searches for a member that can serve
// it, sends one request and returns the answer. A request whose answer was lost
// returns engine.ErrUncertain: package lease repeats it with the same nonce.
//
// Requests for locks in correctness mode go to the leader. All sessions share one
// stream, and requests that arrive while a message is being sent share the next
// message. After a change of leader, sessions are attached to the new leader, which
// reports the leases that it does not know.
//
// Requests for locks in efficiency mode go to any member, over a stream of their
// own. Members keep no state of a lease, so every request carries the lease.
//
// The types, in reading order:
//
//   - [Backend]: the endpoints, and locks in correctness mode.
//   - [Efficiency]: locks in efficiency mode.
//   - connector: the connection in use, and the search for a member.
//   - connection: a connection to one member with its stream.
//   - operation, pending: a call on the stream, and one without an answer.
//   - sender, codec: what is sent next, and how gRPC gets it.
//   - session: an engine.Session in correctness mode.
//   - topologyWatch: the policies and the Redis fleet, from any member.
//   - [WatchSilence]: notices a silent member on a connection without a session stream.
//
// Package clientcore decides which member is asked next, package wire converts messages
// and errors, and package secret authenticates calls.
package remote
