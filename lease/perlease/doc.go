// Package perlease builds an engine.Session on an engine that has no sessions, such
// as the efficiency mode: there each lease is renewed and released by itself, by any
// process that can name it.
//
// The engine does not know the session, so the session ends with its process. A
// lease whose acquire was not answered is held until its TTL passes, unless the
// engine finds it by session and nonce. The package does not retry.
//
// The types, in reading order:
//
//   - [Engine]: acquires, renews and releases leases, each an engine.Held.
//   - [Session]: an engine.Session on an Engine; ended.go has the attempts that it
//     refuses.
package perlease
