// Package redisnode is a model in Go of one Redis node of the efficiency mode: the
// rules of redlockadapter/scripts on plain values.
//
// It does not model a server: there is no connection, no persistence and no
// clock. The caller passes the node's time, in milliseconds, and decides what a
// restart keeps. A test runs the same random calls on the model and on the
// scripts, on a redis-server and on miniredis, and compares every reply and all
// data.
//
// The nouns, in reading order: [Record], one lock; [State], what a node stores
// about itself, with the rules of the scripts as methods that change a State and
// the Records of one request; [Node], the data of all lives of a server.
//
// The exhaustive search, the simulator and the tests in virtual time use it.
package redisnode
