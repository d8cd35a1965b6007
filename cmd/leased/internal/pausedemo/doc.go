//go:build unix

// Package pausedemo tells why a lock needs a gate, with real processes: two
// holders change one account under a lock of a real service. One of them is
// stopped with SIGSTOP between its read and its write, until its lease has
// passed to the other one, which writes. Then it goes on.
//
// What it does not show: that such a pause is likely. It shows what happens.
//
// The nouns, in reading order: [Demo], the director; actor, a process as the
// director sees it; [Hold], what that process does; history, what happened, for
// the picture.
package pausedemo
