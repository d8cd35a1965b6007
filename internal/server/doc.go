// Package server is the service: gRPC and HTTP/JSON on one port, in front of
// both modes.
//
// What it does not give: rights. Who is let in may do everything, and without
// [Users] everyone is let in; without TLS it serves loopback addresses only. Leases of the efficiency mode are kept by the leader;
// when it fails they are found again where Redis still has them, else they are
// lost, and their holders are told. List and a watch by prefix know of that mode
// what the leader remembers.
//
// The nouns, in reading order:
//
//   - [Config], [Server]: what is wired together, and what runs.
//   - [Users]: who is let in.
//   - splitter: tells gRPC from HTTP on one port.
//   - service, admin: the API. gRPC and the JSON bridge call the same methods.
//   - stream: one client's session stream.
//   - registry, entry: the sessions that this member knows.
//   - router: which mode a lock has, and so which engine serves it.
//   - mover: how a lock gets from one mode to the other.
//   - book, feed: what is known of the locks of the efficiency mode, and how
//     those who watch hear of changes.
//   - announcer: how members know where each other's API is.
package server
