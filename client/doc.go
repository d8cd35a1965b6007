// Package client connects a program to a leased service.
//
// A lease alone does not protect data, because its holder may be paused and wake up
// after the lease has passed to another holder. Write through a gate (package
// storagegate) that lease.Gate binds to the lease.
//
// [Dial] returns one lease.Client for locks of both modes. The policies of the service give each lock its mode and
// timings, and the program receives changes automatically. Requests for a lock in correctness mode go to the leader of
// the service: a program that reaches only followers gets none. Requests for a lock in efficiency mode go directly to
// the Redis nodes, whose addresses the service publishes. If the program cannot reach a quorum of the nodes, or may not
// use them, these requests go through a member of the service. The client logs that once. go-redis logs failed
// connections to the standard error, unless the program calls Disable of github.com/redis/go-redis/v9/logging.
//
// While the service has no leader or cannot be reached, locks in efficiency mode
// continue under the last known policies. The Redis nodes refuse policies that are
// older than the newest that they have seen.
//
// When a lock changes its mode, an Acquire that waits for it continues in the other
// mode. A holder of a lock that leaves correctness mode keeps the lock until it
// releases it. A holder of a lock that leaves efficiency mode cannot renew: it keeps
// the lock for the rest of its TTL at most, and then loses it with lease.ErrTaken.
//
// The files, in reading order: dial.go (options), router.go (which engine serves a lock),
// redislocks.go (Redis directly or through a member), redis.go (connections to Redis).
package client
