// Package pgxgate is a gate for PostgreSQL with pgx. It needs fewer round trips
// than database/sql allows.
//
// Limits: the same as those of package sqlgate. Table, rule and guards are the
// same, and both gates can be used on one database.
//
// Types, in reading order: [Gate], the gate over a pool; [Tx], the transaction of
// a write. [Gate.Do] sends the check together with BEGIN, and in later writes of a
// holder with the first statement too, so that it saves a round trip; [Gate.Batch] sends
// check, writes and commit in one round trip.
package pgxgate
