// Package client connects a program to a leased service.
//
// What it does not give: a lease alone protects nothing, since its holder may be
// paused and wake up after the lease has passed on. Send Lease.Token with each
// write to a gate (package storagegate).
//
// [Dial] returns one lease.Client for locks of both modes. The policies of the
// service say which lock has which mode and which timings; a change reaches the
// program by itself. A lock in correctness mode goes to the leader of the service. A
// lock in efficiency mode goes straight from the program to the Redis nodes, which
// the program learns from the service. If the program cannot reach a quorum of them,
// or is not allowed to, these locks go through a member of the service; that is
// logged once.
//
// While the service has no leader, or is out of reach, locks in efficiency mode go
// on by the policies as last heard. The Redis nodes refuse policies that are older
// than the newest that they have seen.
//
// When a lock changes its mode, an Acquire that waits for it goes on waiting in the
// other mode. A holder of a lock that leaves the correctness mode keeps it until it
// releases it. A holder of a lock that leaves the efficiency mode has no more
// renewals: it keeps the lock for the rest of its TTL at most, then it is told with
// engine.ErrTaken.
//
// The files, in reading order: dial.go (options), router.go (which way a lock goes),
// session.go (a session over both modes), redislocks.go (Redis directly, or through a
// member), redis.go (the connections to Redis).
package client
