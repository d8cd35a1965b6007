// Package scripts is what a Redis node does, in Lua, and how Go calls it. docs/REDLOCK.md
// has the protocol; each script is one step of it.
//
// It knows one node only, and gives no promise by itself: that takes a quorum of nodes,
// see package quorum. Nothing here waits for more than one reply.
//
// In reading order: the files *.lua, each with its keys, arguments and replies; the
// [Attempt], which acquires, raises and renews; [Release]; the [Record] of a lock; the
// state of a node, from [Report] to [Sweep].
package scripts
