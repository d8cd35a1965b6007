// Package fleet connects a member to the Redis nodes of efficiency mode, and makes
// the leader bring these nodes to the state that the Raft log requires.
//
// It grants no locks, and no grant waits for it. While the cluster has no leader,
// nodes that lost their state stay empty and migrations wait, but the other nodes
// grant locks as before.
//
// Files, in reading order:
//
//   - connection.go: [Connection] of a member to the fleet of its topology.
//   - plan.go: [Plan] decides what the leader does next. It is pure: the state of
//     the log, the reports of the nodes and the time go in, [Action]s come out.
//   - migration.go: the part of the Plan that completes migrations and changes of
//     the fleet.
//   - recover.go: the part of the Plan that recovers empty nodes.
//   - keeper.go: [Keeper] runs the Plan on the leader.
//   - execute.go: how the Keeper carries out actions.
package fleet
