// Package engine is the contract between package lease and the engines that provide
// leases: memory, Redis, Raft and a remote service.
//
// A program that only acquires leases needs package lease. This package does not keep
// leases alive, retry or wait for a service: package lease does.
//
// The nouns, in reading order:
//
//   - [Backend], [Session]: what an engine implements.
//   - [Request], [Nonce], [Grant]: a request to an engine, and its answer.
//   - [Status], [Party]: the holders and waiters of a lock.
//   - [Mode], [Policy], [Policies]: the strength of a lock, and its timings.
//   - [Topology], [Fleet]: what a service publishes; [Topology.Route] returns the mode
//     that serves a request.
//   - [Signer], [SignedToken]: a backend whose service signs tokens.
//   - [RefusalReporter], [Refusal]: a backend whose service records refused writes.
//   - [Clock], [Instant]: the time.
//   - [Trace], [Round]: what a program that traces its calls adds to a context.
//   - [FormatError]: bytes of a newer build.
package engine
