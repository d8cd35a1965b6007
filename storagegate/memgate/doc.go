// Package memgate gates values that live in the memory of one process.
//
// What it does not give: values and marks are gone when the process ends, and
// another process has its own. A lock service that outlives the process hands
// out larger tokens anyway, so the first write after a restart fences again;
// until then a stale write can pass. Use it where the data has that lifetime
// too: caches, counters, state of a single server, tests.
//
// There is one noun: [Gate], which holds a value of type V for each resource.
package memgate
