// Package leases implements the calls of leased.v1.LeaseService that acquire, renew
// and release leases, in both modes.
//
// For efficiency mode it keeps only a cache of the leases on the Redis nodes, so any member
// can serve the next call. For correctness mode it keeps no sessions: each call finds its
// session in the Raft machine, and a stream has a raftstore.Session for each session that it
// uses.
//
// Files, in reading order:
//
//   - service.go: [Service], and the unary calls on sessions and locks.
//   - acquire.go: a unary Acquire, and its part in efficiency mode.
//   - correctness.go: its part in correctness mode.
//   - holder.go: unary Renew and Release.
//   - redis.go: leases in efficiency mode, for any caller.
//   - sessions.go: how a call finds its session, and nonces for callers that gave none.
//   - stream.go: the session stream of one client.
//   - streamqueue.go: what the client has not been sent yet, and slow clients.
//   - streamsession.go, streamredis.go: its operations in each mode.
//   - knownleases.go: the leases in efficiency mode that a stream need not look up.
package leases
