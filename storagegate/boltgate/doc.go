// Package boltgate gates writes to a bbolt database.
//
// What it does not give: bbolt lets one process open the file at a time, so
// this gate stands between goroutines, and between a process and its
// successors, not between processes that run side by side. It guards only
// writes made through it: code that calls bbolt's Update, or deletes the bucket
// of the marks, is not stopped. After an error from a commit bbolt may show
// data that is not on disk: end the process then, and open the file again.
//
// There is one noun: [Gate]. Marks are kept in a bucket of the same file, so
// that mark and data are one commit of bbolt.
package boltgate
