// Package machine is the replicated state machine of the service. Its state has the
// holders and waiters of locks in correctness mode, the mode of every lock, and the
// tokens that the Redis nodes of efficiency mode may accept.
//
// It has no clock, no randomness and no I/O, so it never expires anything itself. The
// leader measures time and proposes Expire; the machine decides, in log order, whether
// the command still applies. It does not call Redis either: the leader brings the nodes
// to the state that the log requires, and then proposes to finish the change.
//
// The types, in reading order:
//
//   - [Machine]: the state. [Machine.Apply] takes a Command and returns a Result and
//     Events. Replicas that apply the same commands are equal byte for byte.
//   - [Command]: [Lead], [OpenSession], [CloseSession], [Acquire], [Release],
//     [Expire], [EndRequests], [Break], [EndDelay] for locks; [RaiseFloor], [EndSessions],
//     [MarkRestored] after a rollback of the log, or together in [Machine.StartOver].
//   - [Limits]: what one user may use; the leader writes them into its commands.
//   - [Migration]: a migration to another mode, by [SetPolicy], [DeletePolicy], [AbortMigration],
//     [FinishMigration].
//   - [Efficiency]: the fleet and its tokens, by [SetFleet], [FinishFleet],
//     [RaiseCeiling], [Reconcile], [FinishReconcile].
//   - [Life] and [Set]: the lives of its nodes, by [NameLife], [CloseSets],
//     [FinishRecovery].
//   - [Result] and [Event]: the answer to the proposer, and the changes for everyone.
//   - [Encode] and [Decode]: commands as bytes for the log.
//   - [Machine.Snapshot], [Machine.Image] and [Restore]: the state as bytes.
//
// One rule grants every kind of lock: a request is granted when none of its
// resources has a conflicting holder or an earlier conflicting waiter. Requests carry
// the order in which they were applied, so locks are granted first come, first served.
// This starves no writer, and it cannot deadlock, because the earliest waiter waits for
// holders only.
//
// No command does unbounded work. A session ends in two steps: [CloseSession] or [Expire]
// removes it, and [EndRequests] ends its requests, some at a time. Until then its leases
// are held, and its waiting requests keep their places but are not granted. Another
// incarnation may be opened in the meantime. [EndRequests] also sweeps the locks that migrate to
// efficiency mode: it cancels their waiters, which are not granted until then, and ends their
// leases if the migration does not wait for them.
//
// Clients choose the ids of their sessions, so that they can repeat a request to open
// one. A copy of that request may arrive after the session has ended. It then opens
// another incarnation, with a number that no other session has. Every command of a
// session names its incarnation and has no effect on any other: the result says that
// the session has ended. See docs/adr/0015-incarnations.md.
package machine
