// Package redisgate is a gate for Redis. One Lua script checks the token, writes
// and raises the mark.
//
// Limits:
//
//   - A script is atomic for others, but it is not rolled back. If one of several
//     commands fails (for example because of a wrong type), the commands before
//     it remain, and the error matches storagegate.ErrUncertain. A single command
//     is all or nothing.
//   - The mark is only as durable as the data. Without an append-only file that
//     is synced with every write, a crash loses the last marks; with asynchronous
//     replication, a failover does; an eviction policy that drops keys without an
//     expiry ("allkeys-...") drops any mark. A stale write may then be admitted.
//     [Verify] checks the server. FLUSHALL deletes all marks.
//   - A client that distributes keys over independent servers has no place for a
//     mark: a redis.Ring is refused.
//   - After a lost connection the outcome is unknown (storagegate.ErrUncertain).
//     The gate never sends a write twice, even if the client has MaxRetries: if
//     the first request has written and a newer token was admitted in between,
//     the second would be refused, and the refusal would claim that nothing was
//     written. The holder can retry itself, but an append is then applied twice.
//   - go-redis stops waiting for a cancelled or expired context only if
//     ContextTimeoutEnabled is set, and the server always completes the script.
//
// Data and mark must be in one slot of a cluster: every key of a resource has the
// resource as its hash tag ([Key]), or is the resource. Tokens are stored as
// decimal text and compared as numbers, which are exact up to 2^53.
//
// Types, in reading order: [Gate]; [Tx], the commands of one write; [Script], a
// write in Lua; [Key], the name of a key in the slot of its mark; [Verify],
// what the server lacks.
package redisgate
