// Package lease is what a program calls to take a lock for a while.
//
// What a lease does not give: a holder may be paused, by a garbage collector, a
// SIGSTOP, a suspended machine or a slow network, and wake up after its lease
// has passed to someone else. No check of the lease before a write can prevent
// that, so there is no such check here. Instead every lease has a token, and
// the caller passes [Lease.Token] with its write to a gate (package
// storagegate) that refuses older tokens. A lease with no gate behind it is
// only a hint.
//
// The nouns, in reading order:
//
//   - [Client]: takes leases, and keeps them alive; [Client.Acquire],
//     [Client.TryAcquire], [Client.Do], [Client.Elect].
//   - [Lease]: what the caller holds.
//   - [Mode], [Policy]: how strong a lock is, and its timings. They belong to
//     the lock, never to one call.
//   - [Topology], [Fleet]: what a service tells its clients of both modes;
//     [Topology.Route] decides which mode serves a request.
//   - [Backend], [Session]: what provides leases: memory, Redis, Raft, or a
//     remote server.
//   - [Request], [Grant], [Nonce]: what a Backend is asked and what it answers.
//   - [Clock], [Instant]: the time by which a lease ends.
//   - [Hooks]: how to observe all this.
//
// How long a lease is valid is counted from the moment before the request was
// sent, minus an allowance for clock drift, on the more pessimistic of two
// clocks. The service counts from the moment it received the request, so the
// holder gives up first, if the clocks run at about the same rate.
package lease
