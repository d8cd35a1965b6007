// Package machine is the replicated state of the service: who holds which lock of
// the correctness mode, who waits, which lock has which mode, and which tokens the
// Redis nodes of the efficiency mode may accept.
//
// What it does not do: it has no clock, no randomness and no I/O, so by itself
// it never expires anything. A leader watches the time and proposes Expire; the
// machine decides, in the order of the log, whether that still counts. Nor does it
// talk to Redis: a leader brings the nodes to where the log wants them, and then
// proposes to finish the change.
//
// The nouns, in reading order:
//
//   - [Machine]: the state. [Machine.Apply] takes a Command and returns a
//     Result and Events; replicas that apply the same commands are equal byte
//     for byte.
//   - [Command]: [Lead], [OpenSession], [CloseSession], [Acquire], [Release],
//     [Expire], [Break], [EndDelay] for locks; [RaiseFloor], [EndSessions],
//     [MarkRestored] after a rollback of the log.
//   - [Move]: a change of mode, by [SetPolicy], [DeletePolicy], [AbortMove],
//     [FinishMove].
//   - [Efficiency]: the fleet and its tokens, by [SetFleet], [FinishFleet],
//     [AssignRange], [RaiseCeiling], [Reconcile], [FinishReconcile].
//   - [Result] and [Event]: what the proposer is told, and what everyone is.
//   - [Encode] and [Decode]: commands as bytes for the log.
//   - [Machine.Snapshot] and [Restore]: the state as bytes.
//
// One rule grants every kind of lock: a request is granted when none of its
// resources has a conflicting holder or an earlier conflicting waiter. Requests
// carry the order in which they were applied, so that is first come, first
// served; it starves no writer; and it cannot deadlock, since the earliest
// waiter waits for holders only.
//
// Clients choose the ids of their sessions, so that a request to open one can be
// repeated, and a copy of it can be so late that the session has ended. It then
// opens another incarnation, with a number that the log has given to no other.
// Every command of a session names its incarnation, and has no effect on another:
// the client of the first is told that it has ended. See
// docs/adr/0015-incarnations.md.
package machine
