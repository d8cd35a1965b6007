// Package replica applies the committed entries of the Raft log to the machine of
// one node, and detects a node whose state differs.
//
// It does not decide anything and does not know who leads: package machine
// decides, and package raftstore proposes.
//
// The nouns, in reading order: [EncodeEntry], the form of commands in the log
// (entry.go); [Chain], the history of a replica as a hash (chain.go);
// [EncodeState], the form of a snapshot (state.go); [FSM], which the Raft library
// calls, and its [Observer] (fsm.go).
package replica
