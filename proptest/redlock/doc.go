// Package redlock checks the token protocol of the efficiency mode
// exhaustively: every order in which messages can arrive, locks can expire and
// nodes can lose their data, for a few nodes and attempts.
//
// What it does not give: it says nothing of larger numbers, of time, or of
// mutual exclusion, which the protocol does not promise without time.
//
// The decisions are those of package quorum, the very code that production
// runs. The rules of a node are in [Column]; a test compares them with the Lua
// scripts on a real server.
//
// What was searched, all with 3 nodes, every world up to the names of nodes,
// attempts and joins, no violation:
//
//	2 attempts that renew, no loss                          10,263 worlds
//	2 attempts, 1 loss, 1 try to bring the node back       389,054 worlds
//	3 attempts, no loss                                  4,219,713 worlds
//	2 attempts, 2 losses, 2 tries to bring nodes back   27,669,863 worlds
//
// The first three are part of make prop; the last takes more than two minutes by
// itself, and runs where LEASED_SOAK is set. Random walks go further: 3 attempts
// with 2 losses, and 5 nodes with 3. Readers and permits are not told apart: for
// tokens one that passes its lock on is one whose lock ends, which happens here at
// any moment.
//
// The nouns, in reading order: [Column], what one node knows and what is under
// way to and from it; [World], all columns and what the clients know; [Search],
// which visits every World that can be reached.
package redlock
