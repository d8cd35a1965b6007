// Package logstore stores the log and the votes of a Raft node on disk.
//
// It repairs nothing. A store that has failed once may return data that never reached the
// disk. So the first error, or a write that takes too long, ends the node, which must be
// restarted from disk.
//
// The types: [Store] is an open log in a data folder, of one [Kind]; [Guard] ends the node
// on errors and stalls; [Votes] writes a vote in one transaction; [WriteBehind] lets a leader
// replicate entries while it writes them.
package logstore
