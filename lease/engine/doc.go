// Package engine is the contract between package lease and what provides leases:
// memory, Redis, Raft or a remote service.
//
// A program that only takes leases needs package lease. This package does not
// keep leases alive, retry or wait for a service: package lease does.
//
// The nouns, in reading order:
//
//   - [Backend], [Session]: what an engine implements.
//   - [Request], [Nonce], [Grant]: what an engine is asked, and its answer.
//   - [Status], [Party]: the holders and waiters of a lock.
//   - [Mode], [Policy], [Policies]: how strong a lock is, and its timings.
//   - [Topology], [Fleet]: what a service publishes for both modes;
//     [Topology.Route] decides which mode serves a request.
//   - [Clock], [Instant]: the time by which a lease ends.
package engine
