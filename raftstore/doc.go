// Package raftstore is the engine of correctness mode: a grant is an entry in a Raft log,
// so a lock has one holder at a time, by log order, whatever the clocks do.
//
// A client that was paused may still act as if it held a lock, so a lock without a
// gate in front of the data is only a hint here too. Without a majority of its nodes the
// service stops. A failover extends leases: it gives every session its full TTL again plus
// half a second, so a lock whose holder has died can stay unavailable for an election, its
// TTL and half a second.
//
// The parts, in reading order:
//
//   - [Config] and [Node]: one member of a cluster, with its disk and its port.
//   - [Backend]: an engine.Backend on nodes in this process.
//   - committer and package proposer: operations that arrive while an entry is in
//     flight become the next entry.
//   - package replica applies committed entries to package machine; package hub notifies
//     waiters, holders and watchers.
//   - leadership and package lessor: the work of a leader. It commits Lead, gives every
//     session its full TTL, then serves, and proposes the end of expired sessions.
//   - contact.go: followers notice a lost leader on time.
//   - admission and catchUp: a node that lost its data folder does not vote.
//   - peers.go and wentback.go: which peers may connect, and the refusal of a voter with
//     an older data folder.
//   - [Membership], [Node.Join], [Node.Transfer], [Status]: the cluster.
//   - [replica.Chain]: a hash of everything that a replica has applied. Every entry carries the
//     leader's hash; a replica with another hash stops.
//   - [Node.SaveSnapshot], [Node.RestoreSnapshot], [Recover]: operations that may roll
//     the log back, and therefore raise the tokens.
//
// Other files: session.go and calls.go (the calls of a session), policies.go, efficiency.go
// and topology.go (policies, the Redis fleet, and what clients learn of them), observer.go
// (what a node updates after each command), hooks.go ([Hooks], for metrics), longmutex.go (a mutex for long waits).
//
// The Raft library is hashicorp/raft v1.7.3. Its known problems are handled in package
// transport (heartbeats, pipelining), package logstore (votes, stalls, errors), committer
// (futures that hang), admission, late.go and followerlog.go (snapshots, and what arrives after
// them) and package replica (errors in responses). The comments there
// describe them.
package raftstore
