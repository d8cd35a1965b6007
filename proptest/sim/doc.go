// Package sim runs the pure cores of this project against everything that can
// go wrong, in virtual time, on one goroutine, from one seed.
//
// FaultKind it does not give: it has no engine, no sockets, no disks and no
// goroutines, so it says nothing of theirs. The replication of the log is written
// for this package, and Redis nodes are the model of package redisnode, which its
// tests compare with the scripts. The rest is the code that production runs:
// machine, quorum, recovery, the leader's plan of package fleet, fencing and lease.
//
// The same [Plan] gives the same history, to the last event.
//
// The nouns, in reading order: [Plan], who takes part, and what goes wrong when;
// [Setting], a service without Redis, a standalone fleet, or both modes; [Fault],
// one thing that goes wrong; World, the loop that lets things happen; client,
// which asks, holds, writes and gives back; cluster with its replicas, the
// correctness mode; redisServer and direct, the efficiency mode; router, a client
// of both; keeper, the leader's side of a fleet; storage, the gate and the data;
// [Result], what package property has to say.
package sim
