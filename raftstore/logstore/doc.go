// Package logstore is where a Raft node keeps its log and its votes.
//
// What it does not do: it repairs nothing. A store that has failed once may
// show data that never reached the disk, so the first error, or a write that
// takes too long, ends the node, and it starts again from what the disk has.
//
// The nouns: [Store] is an open log in a folder, of one [Kind]; [Guard] turns
// its errors and stalls into the end of the node; [Votes] writes a vote in one
// transaction.
package logstore
