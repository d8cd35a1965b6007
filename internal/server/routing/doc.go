// Package routing decides, in a member, which engine serves a lock and which
// member serves a call, and calls the APIs of other members.
//
// It does not make stale decisions safe: it works with the topology that this
// member has applied, which may be old. The engines reject what does not fit. The
// Raft machine rejects locks in the other mode in the order of its log, and the
// Redis nodes reject calls under an older version than the newest that they know.
//
// It does not find members: it calls the addresses that the operator gave, and
// those that members have published in the Raft log.
//
// Files, in reading order:
//
//   - router.go: [Router], the engine of a lock, and how a request is routed again.
//   - leader.go: the leader's address, and how a member waits for a leader.
//   - peers.go: connections to other members; join.go: how a new member joins a
//     cluster; announce.go: how a member publishes its address.
package routing
