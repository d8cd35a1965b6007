// Package sim runs the pure cores of this project against everything that can
// go wrong, in virtual time, on one goroutine, from one seed.
//
// What it does not give: it has no engine, no sockets, no disks and no
// goroutines, so it says nothing of theirs. The replication of the correctness
// mode and the rules of a Redis node are written for this package (a test
// compares the latter with the real scripts); what is replicated, how votes are
// counted, what a gate admits and how the time of a lease is reckoned is the
// code that production runs: machine, quorum, fencing and lease.
//
// The same [Plan] gives the same history, to the last event.
//
// The nouns, in reading order: [Plan], who takes part, and what goes wrong when;
// [Fault], one thing that goes wrong; World, the loop that lets things happen;
// client, which asks, holds, writes and gives back; cluster with its replicas,
// the correctness mode; voters with their Redis nodes, the efficiency mode;
// storage, the gate and the data; [Result], what package promise has to say.
package sim
