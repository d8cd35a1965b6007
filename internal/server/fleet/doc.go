// Package fleet connects a member to the Redis nodes of the efficiency mode, and
// has the leader bring these nodes to where the Raft log wants them.
//
// It grants nothing by itself, and it is not on the path of a grant: while no
// member leads, nodes that lost their state stay empty and changes of mode wait,
// but locks are granted as before.
//
// The nouns, in reading order:
//
//   - [Current]: the connection of a member to the fleet of its local topology.
//   - [Plan]: what the leader has to do next. It is pure: the state of the log, the
//     reports of the nodes and the time go in, [Action]s come out.
//   - [Keeper]: runs the Plan on the member that leads.
package fleet
