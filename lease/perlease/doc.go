// Package perlease makes a engine.Session of an engine that knows no sessions, as
// the efficiency mode has it: each lease is renewed and released by itself, by
// whoever can name it.
//
// What it does not give: the engine forgets a session with the process. A lease
// whose acquire was never answered is held until its TTL has passed, unless the
// engine can find it by session and nonce.
//
// The nouns, in reading order:
//
//   - [Held]: a lease, and all that is needed to renew or release it.
//   - [Engine]: acquires, renews and releases leases.
//   - [Session]: a engine.Session on an Engine.
package perlease
