// Package remote is the client of a leased service: a lease.Backend over its API.
//
// What it does not give: a request whose answer was lost may have taken effect.
// It is asked again with the same nonce, at whoever leads then, for as long as
// the patience of the Backend lasts; after that the error matches
// lease.ErrUncertain, and the caller must ask again or release, as the contract
// of lease.Session says.
//
// All sessions of a Backend share one stream to the leader, and what concurrent
// callers ask for while a message is being sent goes into the next one. When the
// stream breaks, or the leader changes, the next member is tried; sessions are
// attached again there, and what they no longer hold is told as lost.
//
// The nouns, in reading order:
//
//   - [Backend]: the endpoints, and the link to one of them.
//   - session: a lease.Session.
//   - link: one connection with its stream.
//   - package wire: the messages.
package remote
