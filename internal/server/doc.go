// Package server assembles the service of one member: gRPC and HTTP on one port, in
// front of both modes.
//
// Without users everyone may do everything. Without TLS the server listens on loopback
// addresses only.
//
// Any member serves locks in efficiency mode, by the topology that it has applied
// and its own connections to the Redis nodes. The leader serves locks in correctness
// mode.
//
// This package has [Config], [Server] and the port that both share (portmux.go and conns.go), and no logic
// of calls. The packages below it, from the bottom up:
//
//   - auth: the users and their rights; limits: what each may use; audit: who did what.
//   - fleet: the connection to the Redis nodes, and the leader's work on them.
//   - routing: the engine of a lock, the leader of the cluster, and calls to other members.
//   - observe: lists, watches, overviews and histories of locks.
//   - leases: acquire, renew and release.
//   - admin: policies, the Redis fleet, members and snapshots.
//   - metrics: what a member counts and measures.
//   - calls: the table of all calls, and the chain that each passes.
//   - httpapi: JSON over HTTP, in front of the same chain as gRPC; liveness and readiness.
package server
