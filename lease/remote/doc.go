// Package remote is the client of a leased service: lease.Backends over its API.
// Programs use package client, which chooses between them.
//
// What it does not give: a request whose answer was lost may have taken effect.
// It is asked again with the same nonce, for as long as the patience of the Backend
// lasts; after that the error matches engine.ErrUncertain, and the caller must ask
// again or release, as the contract of engine.Session says.
//
// Locks in correctness mode go to the leader. All sessions share one stream to it,
// and what concurrent callers ask for while a message is being sent goes into the
// next one. When the stream breaks, or the leader changes, the next member is
// tried; sessions are attached again there, and what they no longer hold is told
// as lost.
//
// Locks in efficiency mode go to any member, over a stream of their own. Members
// keep nothing of a lease: each call names what it is about, and when the stream
// breaks the next member continues. What an unanswered acquire has left behind
// blocks its lock for one TTL at most.
//
// The nouns, in reading order:
//
//   - [Backend]: the endpoints, and the locks in correctness mode.
//   - [Efficiency]: the locks in efficiency mode.
//   - topologyWatch: the policies and the Redis fleet, from any member.
//   - uplink: the link in use, and where to connect when it has ended.
//   - link: one connection with its stream.
//   - session: a engine.Session in correctness mode.
//   - package wire: the messages.
package remote
