// Package quorum decides what the answers of N independent Redis nodes amount to.
//
// It gives nothing that depends on time: it does no I/O, reads no clock, and knows
// nothing of mutual exclusion. It decides tokens: one is granted when a majority
// has accepted the same value for one attempt. A node accepts a value for one
// attempt only, and each larger than the one before; two majorities share a
// node; so no token is granted twice, and a later grant has a larger one.
//
// The nouns, in reading order: [Vote], the answer of one node; [Decide], which
// turns votes into a [Decision]; [Attempt], which follows one attempt from answer
// to answer and says what to send next.
//
// The adapter, the exhaustive search and the simulator run these same functions.
package quorum
