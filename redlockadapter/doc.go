// Package redlockadapter provides leases over N independent Redis masters: the
// efficiency mode.
//
// It does not give mutual exclusion in every case: two clients may hold one lock
// at the same time when a node loses its data within a TTL, when clocks run at
// different rates, or when a client is paused past its deadline. A lock without a
// gate behind it is only a hint. There are no shared leases and no permits. The
// order in which waiting processes are served is approximate. With one node that
// node is a single point of failure.
//
// It gives, without any assumption about time: no token is granted twice, and a
// later grant has a larger one. A restart of a Redis server is a loss: the node
// does not vote until it was given a fresh range of tokens, by a service or, where
// there is none, by a quorum of nodes that report how far tokens had come.
//
// docs/REDLOCK.md has the protocol. The nouns, in reading order:
//
//   - [Config], [Backend]: the nodes, and the engine.Backend on them.
//   - session: a engine.Session; it remembers what became of each nonce.
//   - attempt: one try of one nonce; package quorum decides it.
//   - [Held]: a granted lease, as any process can renew or release it.
//   - queues: who waits in this process, and who contends on the nodes.
//   - node, connection, link: one Redis master, the pipelined connection to it,
//     and the network connection in one life of the server.
//   - keeper: checks the servers and recovers lost nodes; package recovery decides.
//   - scripts: what a node does, in Lua.
package redlockadapter
