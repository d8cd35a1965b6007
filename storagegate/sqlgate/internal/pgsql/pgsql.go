// Package pgsql is what the PostgreSQL gates have in common: the statements,
// and what the server's error codes mean.
package pgsql

import "strings"

// Admit locks the row of the resource $1 and raises its mark to the token $2, if
// the rule with the bound $3 allows it. It returns the mark that the row has
// then, which is the token if and only if that was admitted.
const Admit = `SELECT leased_try($1, $2, $3)`

// claim notes for the guard of a table, until the transaction or savepoint ends,
// that the token $2 was admitted for the resource $1. It is never empty.
const claim = `set_config('leased.claims', concat(current_setting('leased.claims', true), $2::bigint, ' ', $1::text, E'\n'), true)`

// held locks the row of the resource $1. It is a subquery, so that what is made
// of its mark comes after a wait for the lock.
const held = `(SELECT mark FROM leased_marks WHERE resource = $1::text FOR NO KEY UPDATE)`

// Hold locks the row of the resource $1 and returns its mark. If that is the
// token $2, the token is admitted, and all is done: a holder's writes after its
// first need no more, and it costs half of what Admit does.
const Hold = `SELECT CASE WHEN h.mark <> $2::bigint THEN h.mark WHEN ` + claim + ` <> '' THEN h.mark END FROM ` + held + ` h`

// Fence is Admit that raises an exception for a refusal, so that the statements
// after it in a batch have no effect. It takes the way of Hold if it can.
const Fence = `SELECT CASE WHEN ` + held + ` = $2::bigint AND ` + claim + ` <> '' THEN $2::bigint
	ELSE leased_fence($1::text, $2::bigint, $3::bigint) END`

const (
	// Mark reads the mark of the resource $1.
	Mark = `SELECT mark FROM leased_marks WHERE resource = $1`
	// InstallLock keeps two installations apart until their transactions end.
	InstallLock = `SELECT pg_advisory_xact_lock(hashtext('leased_marks'))`
)

// Meaning is what an error of the database says about the transaction.
type Meaning int

// The meanings.
const (
	Unknown    Meaning = iota // not an answer, or none that settles it
	RolledBack                // the transaction did not happen
	Again                     // it did not happen, and may if it is run again
	EnterFirst                // it did not happen; the mark has to be raised before it begins
)

// Explain is the meaning of a SQLSTATE that PostgreSQL answered with.
func Explain(state string) Meaning {
	switch {
	case state == "40001", state == "40P01":
		return Again
	case state == "LF006":
		return EnterFirst
	case state == "40003", state == "", strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"):
		// The connection or the server went away, perhaps after the commit.
		return Unknown
	default:
		return RolledBack
	}
}
