// Package redlockadapter provides leases over N independent Redis masters: the
// efficiency mode.
//
// What it does not give: in rare cases two clients hold one lock at the same
// time. It takes a node that loses its data inside a TTL, clocks that run at
// different rates, or a client that is paused past its deadline. A lock without
// a gate behind it is therefore only a hint. The order in which waiting
// processes are served is approximate. With one node (N = 1) that node is a
// single point of failure.
//
// What it gives without any assumption about time: no token is granted twice,
// and a later grant has a larger one, as long as a majority of the nodes keeps
// its data. A node that was emptied, or restarted so that it may have lost
// something, does not vote until it has been brought back with a new epoch.
// That is automatic while a majority has data; with fewer it is an operator's
// decision, see [Init].
//
// The nouns, in reading order:
//
//   - [Config]: the nodes and the timings; [New] checks both.
//   - [Backend]: the lease.Backend; it holds what the process knows of locks.
//   - session, attempt: what a client has asked for, and one try at it.
//   - lane, exchange, link: the one ordered stream of scripts to a node, what it
//     sends in one go, and the connection it sends it on.
//   - queue: who waits in this process, and who is woken next.
//   - keeper of epochs: detects emptied nodes and brings them back.
//   - package quorum: the decisions, as pure functions.
//   - scripts: what a node does, in Lua.
package redlockadapter
