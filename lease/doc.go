// Package lease takes locks for a time, renews them and releases them.
//
// A lease alone does not protect data. Its holder may be paused, by a garbage
// collector, a SIGSTOP, a suspended machine or a slow network, and wake up after the
// lease has passed to another holder. No check before a write can prevent that, so
// this package has none. Instead every lease has a fencing token: the caller passes
// [Lease.Token] with each write to a gate (package storagegate), which refuses older
// tokens. A lease without a gate is only a hint.
//
// Programs that use a service get their Client from package client. What provides
// leases (a service, Redis, Raft, memory) implements the contract in package engine.
//
// The nouns, in reading order:
//
//   - [Client]: takes leases and keeps them alive: [Client.Acquire],
//     [Client.TryAcquire], [Client.Do], [Client.Elect].
//   - [Lease]: a lock that the caller holds, with its token.
//   - [Option], [AcquireOption]: of a Client, and of one acquisition.
//   - [Mode], [Policy]: how strong a lock is, and its timings. They belong to the
//     lock, not to one call.
//   - [Status], [Party]: the holders and waiters of a lock.
//   - [Hooks]: observe a Client.
//   - [Refusal]: a write that a gate refused, for [Client.ReportRefusal].
//
// A lease is valid for its TTL, counted from before the request was sent, minus an
// allowance for clock drift, by the more pessimistic of two clocks. The service
// counts from when it received the request, so the holder gives up first if both
// clocks run at about the same rate.
//
// The files in call order: client.go, settings.go (options and policies of one
// acquisition), acquisition.go, retry.go (the only retry loop), keepalive.go with
// renewal.go and release.go (one session), reentry.go, signature.go,
// refusal.go.
package lease
