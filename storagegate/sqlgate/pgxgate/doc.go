// Package pgxgate gates writes to PostgreSQL through pgx, with fewer round
// trips than database/sql allows.
//
// What it does not give is said in package sqlgate: the table, the rule and
// the guards are the same, and both gates can be used on one database.
//
// The nouns, in reading order: [Gate], the gate over a pool; [Tx], what a write
// works with. [Gate.Do] sends the check along with BEGIN, so it costs no round
// trip of its own; [Gate.Batch] sends check, writes and commit in one.
package pgxgate
