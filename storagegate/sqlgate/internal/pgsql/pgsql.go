// Package pgsql is what the PostgreSQL gates have in common: the statements,
// and what the server's error codes mean.
package pgsql

import (
	"fmt"
	"strings"
)

// Upsert is the format of the statement that locks the row of a resource and
// raises its mark, if the rule allows it. Its arguments are the placeholders of
// resource, token and bound, and further assignments.
//
// It has to lock the row whatever the rule then says: PostgreSQL locks a
// conflicting row before it looks at the last WHERE, and SQLite locks the whole
// database. The first WHERE refuses a jump on first use; it must not stop the
// update of a row that exists. A refused token returns no row.
const Upsert = `INSERT INTO leased_marks AS m (resource, mark)
SELECT %[1]s, %[2]s WHERE %[3]s = 0 OR %[2]s <= %[3]s OR EXISTS (SELECT 1 FROM leased_marks e WHERE e.resource = %[1]s)
ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark%[4]s
WHERE excluded.mark >= m.mark AND (%[3]s = 0 OR excluded.mark - m.mark <= %[3]s)
RETURNING mark`

// admitted is what the guard of a table compares with the writing transaction.
const admitted = `, admitted_by = pg_current_xact_id(), admitted_at = transaction_timestamp()`

// Admit is Upsert for PostgreSQL: $1 is the resource, $2 the token, $3 the
// bound. One row means admitted.
var Admit = fmt.Sprintf(Upsert, "$1::text", "$2::bigint", "$3::bigint", admitted)

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
)

// Explain is the meaning of a SQLSTATE that PostgreSQL answered with.
func Explain(state string) Meaning {
	switch {
	case state == "40001", state == "40P01":
		return Again
	case state == "40003", state == "", strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"):
		// The connection or the server went away, perhaps after the commit.
		return Unknown
	default:
		return RolledBack
	}
}
