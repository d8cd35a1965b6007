// Package memgate is a gate for values in the memory of one process.
//
// Limits: values and marks are lost when the process ends, and every process has
// its own. After a restart the lock service grants larger tokens, so the first
// write fences again; until then a stale write is admitted. Use it for data with
// the same lifetime: caches, counters, the state of a single server, tests.
//
// There is one type: [Gate], which holds a value of type V for each resource.
package memgate
