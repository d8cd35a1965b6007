// Package fencing decides whether a write is stale: a write whose token is
// older than one already admitted for the same resource is refused.
//
// Limits: the package does not lock, no fence depends on a clock, and a [Fence] in
// one process protects nothing in another. A check here followed by a write
// elsewhere is two steps, and a writer can be paused between them. If the data
// lives in a database, a file or another service, make the check part of that
// storage's own atomic step; the gates of package storagegate do that. A fence
// does not order or deduplicate the retries of one holder: they carry the same
// token, so all of them pass.
//
// Types, in reading order:
//
//   - [Resource]: the name of what is protected.
//   - [Token]: the number of a grant, unique and increasing per Resource.
//   - [Rule]: the decision, a pure function of mark and token.
//   - [Fence]: the rule applied to marks in memory.
//   - [StaleError], [JumpError]: why a write was refused.
//   - [Header], [MetadataKey], [EnvToken]: how a token is transmitted.
//
// Package signature adds optional signatures, which prove that the lock service
// granted a token.
//
// The package imports only the standard library, so a storage server can
// enforce tokens without importing a lock client.
package fencing
