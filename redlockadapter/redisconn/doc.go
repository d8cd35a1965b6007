// Package redisconn is the connection to one Redis server: requests of many callers
// share one connection, in order, and are sent in batches, as pipelines of go-redis.
//
// It does not retry, and it does not hide a restart. A request whose connection breaks
// fails, and the server may have executed it. A server that restarted, or that was a
// replica in between, has another life: its keys have other names, so nothing that it
// stored before is found.
//
// The nouns, in reading order:
//
//   - [Script], [Request], [Reply]: one script call and its answer.
//   - [Conn]: the connection; it reconnects when there is something to send.
//   - socket: one connection of go-redis, in one life of the server.
//   - [Info], [Servers]: the identity of a server, and whether it may be a node.
package redisconn
