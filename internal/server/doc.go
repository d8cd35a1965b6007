// Package server is the service: gRPC and HTTP/JSON on one port, in front of both
// modes.
//
// It does not give rights: a caller that is let in may do everything, and without
// [Users] everyone is let in; without TLS it serves loopback addresses only.
//
// Any member serves locks in efficiency mode, by the topology that it has applied
// and its own connections to the Redis nodes. It keeps nothing about these leases:
// they are on the nodes, so another member serves the next call. The leader serves
// locks in correctness mode.
//
// The nouns, in reading order:
//
//   - [Config], [Server]: the parts, and the running service.
//   - [Users]: the callers that are let in.
//   - splitter: tells gRPC from HTTP on one port.
//   - service, admin: the API. gRPC and the JSON bridge call the same methods.
//   - router: which mode, and so which engine, serves a lock.
//   - efficiency: leases in efficiency mode, for callers anywhere.
//   - registry, session: the sessions of the correctness mode that this member knows.
//   - stream: the session stream of one client.
//   - [Feed], watch: how watchers hear of changes.
//   - announcer: how members learn the addresses of each other's API.
//   - package fleet: the connection to the Redis nodes, and the leader's keeper.
package server
