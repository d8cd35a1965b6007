// Package watch lists locks and reports changes of locks as they happen.
//
// A watch does not report every change: changes in quick succession may be merged,
// and a change that is reversed at once may not appear. The last state always does.
//
// Files, in reading order:
//
//   - hub.go: [Hub], which distributes the events of the Raft machine, and remembers
//     why leases ended.
//   - list.go: [Watcher] and its List.
//   - watcher.go: Watch, for one lock or a prefix, in both modes.
//   - events.go: the events that lead from one status of a lock to the next.
package watch
