// Package sqlgate is a gate for PostgreSQL, MariaDB, MySQL and SQLite.
//
// Limits: the gate guards the writes of the transaction that it admitted, and
// nothing that the same code does elsewhere. It does not guard a table against
// other code unless the table has a guard (see [Guard]). Restoring a backup
// restores old marks: raise the floor of the lock service afterwards, so that
// every new token is larger than every old one.
//
// The mark of each resource is a row of the table leased_marks in the database of
// the data. A gated write first locks and raises that row in its own transaction.
// So a newer token cannot be admitted between check and commit, and mark and data
// are committed together. That costs one statement. See [Gate] for the effect of
// isolation levels.
//
// Types, in reading order: [Dialect], the kind of database; [Gate], the gate over
// database/sql; [Verify], what the database lacks; [DDL] and [Guard], the same rule
// inside the database, for programs in any language; [SignedDDL], for signed tokens
// in PostgreSQL. Package pgxgate is the gate for pgx.
package sqlgate
