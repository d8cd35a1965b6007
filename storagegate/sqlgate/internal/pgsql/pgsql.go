// Package pgsql is the common part of sqlgate and pgxgate: the statements for
// PostgreSQL, the meaning of error codes, and the loop that repeats a transaction.
package pgsql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// Admit locks the row of the resource $1 and raises its mark to the token $2 if the
// rule with the bound $3 admits it. It returns the new mark of the row, which is
// the token if and only if the token was admitted.
const Admit = `SELECT leased_try($1, $2, $3)`

// claim records for the guard of a table that the token $2 was admitted for the
// resource $1. The record ends with the transaction or savepoint. Its value is
// never empty.
const claim = `set_config('leased.claims', concat(current_setting('leased.claims', true), $2::bigint, ' ', $1::text, E'\n'), true)`

// held locks the row of the resource $1. It is a subquery, so that its mark is used
// only after a wait for the lock.
const held = `(SELECT mark FROM leased_marks WHERE resource = $1::text FOR NO KEY UPDATE)`

// Hold locks the row of the resource $1 and returns its mark. If the mark is the
// token $2, the token is admitted. That is sufficient for later writes of a holder
// and costs half as much as Admit.
const Hold = `SELECT CASE WHEN h.mark <> $2::bigint THEN h.mark WHEN ` + claim + ` <> '' THEN h.mark END FROM ` + held + ` h`

// Fence is Admit with an exception for a refusal, so that later statements of a
// batch have no effect. It uses the statement of Hold if possible.
const Fence = `SELECT CASE WHEN ` + held + ` = $2::bigint AND ` + claim + ` <> '' THEN $2::bigint
	ELSE leased_fence($1::text, $2::bigint, $3::bigint) END`

const (
	// Mark reads the mark of the resource $1.
	Mark = `SELECT mark FROM leased_marks WHERE resource = $1`
	// Reset lowers the mark of the resource $1 from $2 to $3.
	Reset = `SELECT leased_reset($1, $2, $3)`
	// MarkChanged is the SQLSTATE of Reset if the mark is not $2. Its detail is the
	// mark.
	MarkChanged = "LF009"
	// InstallLock serializes installations until the end of their transactions.
	InstallLock = `SELECT pg_advisory_xact_lock(hashtext('leased_marks'))`
)

// Meaning is the meaning of an error for its transaction.
type Meaning int

// The meanings.
const (
	Unknown    Meaning = iota // the outcome of the transaction is unknown
	RolledBack                // the transaction was rolled back
	Retry                     // it was rolled back and should be repeated
	EnterFirst                // it was rolled back; raise the mark first, then repeat it
)

// Explain returns the meaning of a SQLSTATE of PostgreSQL.
func Explain(state string) Meaning {
	switch {
	case state == "40001", state == "40P01":
		return Retry
	case state == "LF006":
		return EnterFirst
	case state == "40003", state == "", strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"):
		// The connection or the server went away, perhaps after the commit.
		return Unknown
	default:
		return RolledBack
	}
}

// maxRuns is how often Run executes a transaction.
const maxRuns = 10

// Run executes once. It repeats that if the database asks for it because of a
// deadlock or a serialization conflict. If the mark must be raised first, it
// executes enter before.
func Run(ctx context.Context, explain func(error) Meaning, once, enter func() error) (err error) {
	for range maxRuns {
		err = once()
		meaning := explain(err)
		if meaning == EnterFirst {
			meaning = Retry
			if enterErr := enter(); enterErr != nil {
				err, meaning = enterErr, explain(enterErr)
			}
		}
		if meaning != Retry || ctx.Err() != nil {
			break
		}
	}
	return err
}

// ErrBehind means that the mark is below a token that the rule admits.
var ErrBehind = errors.New("the mark was not raised; find out which program changed leased_marks")

// Judge returns why the token was not admitted, given the mark that Admit
// returned, or nil if it was.
func Judge(rule fencing.Rule, resource fencing.Resource, mark, token fencing.Token) error {
	if mark == token {
		return nil
	}
	if err := rule.Admit(resource, mark, token); err != nil {
		return err
	}
	return fmt.Errorf("raise the mark of %q from %d to %d: %w", string(resource), mark, token, ErrBehind)
}
