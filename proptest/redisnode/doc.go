// Package redisnode is a model in Go of one Redis node of the efficiency mode: the
// rules of redlockadapter/scripts on plain values.
//
// It does not model a server: there is no connection, no persistence and no
// clock. The caller passes the node's time, in milliseconds, and decides what a
// restart keeps. A test runs the same random calls on the model and on the
// scripts, on a redis-server and on miniredis, and compares every reply and all
// data.
//
// A life is the time between two restarts of a server: every restart begins a new one,
// and the keys of a life contain its name.
//
// Files, in reading order: record.go, [Record], one lock; state.go, [State], the data of a
// node about itself, with the scripts as methods; node.go, [Node], the data of all lives of
// a server.
//
// It is the only Go model of a Redis node: package sim uses Node, package redlock uses
// State and Record.
package redisnode
