// Package boltgate is a gate for a bbolt database.
//
// Limits: only one process at a time can open a bbolt file, so the gate protects
// goroutines from each other and a process from its predecessors, not concurrent
// processes. It guards only writes that go through it: code that calls bbolt's
// Update, or deletes the bucket of the marks, is not stopped. After a failed
// commit bbolt may show data that is not on disk: exit and open the file again.
//
// There is one type: [Gate]. Marks are stored in a bucket of the same file, so
// mark and data are committed together.
package boltgate
