// Package redisgate refuses stale writes to Redis: one Lua script checks the
// token, writes and raises the mark.
//
// What it does not give:
//
//   - A script is atomic to others, but it is not rolled back. If a command
//     fails in the middle of several (a wrong type, say), those before it stay;
//     the error then matches storagegate.ErrUncertain. One command alone is all
//     or nothing.
//   - The mark is as durable as the data, and in Redis that may be little. With
//     asynchronous replication a failover can lose the last writes and their
//     marks together, and a stale writer may then pass once more. Use append-only
//     files with fsync, and WAIT where that is not enough.
//   - An eviction policy that drops keys without an expiry ("allkeys-...") drops
//     marks, and so does FLUSHALL. [Gate.Verify] finds the first.
//   - A client that spreads keys over servers that do not know each other has no
//     place for a mark: a redis.Ring is refused.
//   - A lost connection leaves the outcome unknown (storagegate.ErrUncertain).
//     The gate never sends a write a second time, whatever MaxRetries of the
//     client says: if the first one had written and a newer token came between,
//     the second would be refused, and the refusal would claim that nothing was
//     written. A holder's own retry passes; an append then lands twice.
//   - A context that is cancelled or timed out stops go-redis from waiting only
//     if ContextTimeoutEnabled is set, and never stops the server.
//
// Data and mark must be in one slot, so that a cluster can hold them: every key
// of a resource carries its name as hash tag ([Key]), or is its name. Tokens are
// stored as decimal text and compared as numbers, which are exact up to 2^53.
//
// The nouns, in reading order: [Gate]; [Tx], the commands of one write;
// [Script], a write in Lua; [Key], the name of a key beside its mark.
package redisgate
