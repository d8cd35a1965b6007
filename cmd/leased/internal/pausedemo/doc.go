//go:build unix

// Package pausedemo shows with real processes why a lock needs a gate: two
// holders update one account under a lock of a real service. One of them is
// stopped with SIGSTOP between its read and its write until its lease has
// expired and the other holder has written. Then it continues.
//
// It does not show how likely such a pause is, only what it does.
//
// The nouns, in reading order: [Demo], which directs the holders; process, a
// holder as the demo sees it; [Hold], the main function of that process.
package pausedemo
