// Package overview streams sorted lists of locks with figures about their use.
//
// A list is not a consistent snapshot: it shows the state that this member has applied,
// and the Redis nodes as they were a moment ago.
//
// Files, in reading order:
//
//   - scan.go: [Service] and its scan of all locks, which all callers share.
//   - order.go: the orders in which a list can be sorted.
//   - service.go: the call Overview: what one caller sees of a scan.
package overview
