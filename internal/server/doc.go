// Package server assembles the service of one member: gRPC and HTTP on one port, in
// front of both modes.
//
// There is no per-user authorization: an authenticated caller may do everything, and
// without users everyone may. Without TLS the server listens on loopback addresses
// only.
//
// Any member serves locks in efficiency mode, by the topology that it has applied
// and its own connections to the Redis nodes. The leader serves locks in correctness
// mode.
//
// This package has [Config] and [Server], and no logic of calls. The packages below
// it, from the bottom up:
//
//   - portmux: gRPC and HTTP on one port.
//   - auth: the users.
//   - fleet: the connection to the Redis nodes, and the leader's work on them.
//   - routing: the engine of a lock, and the leader of the cluster.
//   - peers: calls to other members.
//   - watch: lists and watches of locks.
//   - leases: acquire, renew and release.
//   - admin: policies, the Redis fleet, members and snapshots.
//   - probes: liveness and readiness.
//   - metrics: what a member counts and measures.
//   - httpapi: JSON over HTTP, in front of the same services as gRPC.
package server
