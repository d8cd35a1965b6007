// Package fencing holds the one rule that makes a lock safe to build on: a
// write that carries an older token than one already admitted is refused.
//
// What this package does not give: it does not lock, it knows no time, and a
// [Fence] in one process protects nothing in another. A check here and a write
// elsewhere are two steps, and a paused writer fits between them. Where the
// data lives in a database, a file or another service, the check must be part
// of that storage's own atomic step: that is what the gates are for. A fence
// also does not order or deduplicate the retries of one holder: they carry the
// same token, and all of them pass.
//
// The nouns, in reading order:
//
//   - [Resource]: the name that is protected.
//   - [Token]: the number that a grant carries, unique and growing per Resource.
//   - [Rule]: the decision, a pure function of mark and token.
//   - [Fence]: the rule with concurrent marks in memory.
//   - [StaleError], [JumpError]: why a write was refused.
//   - [Header], [EnvToken], [MetadataKey]: how a token travels.
//
// It imports the standard library only, so that a storage server can enforce
// tokens without importing a lock client.
package fencing
