// Package routing decides, in a member, which engine serves a lock and which
// member serves a call.
//
// It does not make stale decisions safe: it works with the topology that this
// member has applied, which may be old. The engines reject what does not fit. The
// Raft machine rejects locks in the other mode in the order of its log, and the
// Redis nodes reject calls under an older version than the newest that they know.
//
// Files, in reading order:
//
//   - router.go: [Router], the engine of a lock, and the one retry loop of a request.
//   - leader.go: the leader's address, and how a member waits for a leader.
package routing
