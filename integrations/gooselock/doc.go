// Package gooselock runs the migrations of goose under a lease, for PostgreSQL. A
// migrator that was paused cannot change the database after another one has taken
// over:
//
//   - Its transaction cannot commit. Each migration admits the token of the lease in its
//     own transaction, together with the new version (Store).
//   - Its session ends. The next migrator raises the mark, then terminates the sessions
//     of earlier ones (Locker), so that it does not wait for their locks.
//
// What it does not give: the statements of a migration without a transaction
// (NO TRANSACTION, WithIsolateDDL) can commit until their session is terminated.
// Termination works only if all migrators use the same database role and connections are
// not pooled by transaction. Go migrations without a transaction use other connections of
// the pool, which nothing stops; only their version is not recorded.
//
// Read Locker, then Store.
package gooselock
