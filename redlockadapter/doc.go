// Package redlockadapter provides leases over N independent Redis masters: the
// efficiency mode.
//
// It does not guarantee mutual exclusion: two clients may hold one lock at the same time
// when a node loses its data within a TTL, when clocks run at different rates, or when a
// client pauses past its deadline. A lock without a gate is only a hint. There are no
// shared leases and no permits. Waiting processes are served in approximate order. With
// one node, that node is a single point of failure.
//
// It guarantees, without any assumption about time, that no token is granted twice and
// that a later grant has a larger token. A restart of a Redis server counts as data loss:
// the node does not vote until it gets a fresh range of tokens, from a service or, without
// one, from a quorum of nodes that report which tokens were granted.
//
// docs/REDLOCK.md describes the protocol. The packages, from the bottom up:
//
//   - redisconn: the pipelined connection to one Redis server, and its identity.
//   - quorum and recovery: the decisions of the protocol, without I/O.
//   - scripts: the steps of the protocol on one node, in Lua, and how Go calls them.
//   - redlockadapter: the protocol on all nodes.
//
// The files of this package, in reading order:
//
//   - config, backend: [Config] and [Backend].
//   - acquire, attempt, spread: one acquisition attempt, and which nodes it asks; package
//     quorum decides it.
//   - waiter, queue, subscription: the waiters of this process, and their wake-ups.
//   - renew, release, grants: leases, after they are granted.
//   - held, record, inspect: leases as the nodes store them.
//   - hooks: [Hooks], for metrics.
//   - nodes, keeper, standalone, snapshot: the state of the nodes, and their recovery
//     without a service; recovery.Standalone decides it.
package redlockadapter
