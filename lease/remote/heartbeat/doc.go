// Package heartbeat notices a member of the service that no longer answers: one that is
// stopped, or that the network has cut off without closing the connection. TCP does not
// notice a stopped process, and the keep-alive of gRPC takes ten seconds or more.
//
// A member sends a message on every session stream at least once per [Interval], an empty
// one if there is nothing else to send. It does so on the stream itself and not with HTTP/2
// pings, which a proxy answers in the place of a member. A stream without messages is
// silent: the connection is abandoned within two seconds, whether operations are pending
// or not.
//
// The types, in reading order:
//
//   - [Silence]: the decision, without a clock and without I/O.
//   - [Watch]: applies it to a connection that has no session stream of its own.
package heartbeat
