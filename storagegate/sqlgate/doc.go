// Package sqlgate gates writes to PostgreSQL, MariaDB, MySQL and SQLite.
//
// What it does not give: it guards what is written in the transaction that it
// admitted, and nothing that the same code sends elsewhere. It does not guard a
// table against other code unless a guard is put on that table (see [Guard]).
// Restoring a backup brings old marks back: raise the lock service's floor then,
// so that every new token is above every old one.
//
// The mark of each resource is a row of the table leased_marks, in the same
// database as the data. A gated write locks and raises that row first, in the
// transaction that writes, so nobody with a newer token can come between check
// and commit, and mark and data are committed together. That costs one
// statement. See [Gate] for what isolation levels change.
//
// The nouns, in reading order: [Dialect], which database; [Gate], the gate over
// database/sql; [DDL] and [Guard], the same rule inside the database, for
// programs in any language. Package pgxgate is the gate for pgx.
package sqlgate
