// Package scripts has the Lua scripts that run on a Redis node, and the functions that call
// them. Each script is one step of the protocol in docs/REDLOCK.md.
//
// It concerns one node only and guarantees nothing by itself: a guarantee needs a quorum of
// nodes, see package quorum. Nothing here waits for more than one reply.
//
// In reading order: the files *.lua, each with its keys, arguments and replies; the
// [Attempt], which acquires, raises and renews; [Release]; the [Record] of a lock; the
// state of a node, from [Report] to [Sweep].
package scripts
