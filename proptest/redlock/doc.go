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
// The nouns, in reading order: [Column], what one node knows and what is under
// way to and from it; [World], all columns and what the clients know; [Search],
// which visits every World that can be reached.
package redlock
