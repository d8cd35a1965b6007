// Package raftstore is the correctness mode: a grant is an entry in a Raft log,
// so there is one holder of a lock at a time, by log order, whatever the clocks
// do.
//
// What it does not give: a client that was paused may go on believing that it
// holds a lock, so a lock without a gate in front of the data is a hint here
// too. Without a majority of its nodes the service stops. It prolongs leases
// when in doubt: a failover gives every session its full time again, and half a
// second on top, so that a lock whose holder has died can stay closed for an
// election, its TTL and half a second.
//
// The nouns, in reading order:
//
//   - [Config] and [Node]: one member of a cluster, on its disk and its port.
//   - [Backend]: a engine.Backend on nodes in this process.
//   - proposer: all that is asked for while an entry is in flight becomes the
//     next one.
//   - fsm: runs package machine on what is committed; hub passes on what
//     happened: to waiters, holders and watchers.
//   - leadership and lessor: what only a leader does. It commits Lead, gives
//     every session its time, then serves, and proposes the end of those that
//     have run out.
//   - admission: a node that has lost its folder is not heard.
//   - [Membership], [Node.Join], [Node.Transfer], [Status]: the cluster.
//   - [Chain]: the history of a replica as a hash. Every entry carries the
//     leader's; a replica that has another stops.
//   - [Node.SaveSnapshot], [Node.RestoreSnapshot], [Recover]: what may roll the
//     log back, and therefore raises the tokens.
//
// The engine is hashicorp/raft v1.7.3. What is wrong with it for this purpose,
// and what is done about it, is said where it is done: [Transport] and steady
// (heartbeats, pipelining), package logstore (votes, stalls, errors), proposer
// (futures that hang), fsm (errors in responses).
package raftstore
