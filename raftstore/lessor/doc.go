// Package lessor keeps the deadlines of one leadership: when each session
// expires, when each lock-delay ends, and how long ago the leader proved that it
// leads.
//
// It has no clock, no lock and no goroutine. The caller passes the time with
// every call, serializes the calls, and commits the commands that [Lessor.Due]
// returns. Package raftstore does this in production and proptest/sim in the
// simulator.
//
// A deadline alone revokes nothing. Due returns Expire and EndDelay commands
// under the generation of the leadership, and the machine ignores those of a
// former leader.
//
// The nouns: [Lessor] (lessor.go), and the heap of its deadlines (heap.go).
package lessor
