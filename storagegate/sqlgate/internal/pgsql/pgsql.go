// Package pgsql is the common part of sqlgate and pgxgate: the statements for
// PostgreSQL, the meaning of error codes, and the loop that repeats a transaction.
package pgsql

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
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

// Explain returns the meaning of an error of PostgreSQL, with any driver.
func Explain(err error) Meaning {
	var answer interface{ SQLState() string }
	if !errors.As(err, &answer) {
		return Unknown
	}
	switch state := answer.SQLState(); {
	case strings.HasPrefix(state, "25"): // the transaction was idle, or took too long
		return RolledBack
	case state == "40003", state == "", strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"),
		fatal(answer):
		// The connection or the server went away, perhaps after the commit.
		return Unknown
	case state == "40001", state == "40P01":
		return Retry
	case state == "LF006":
		return EnterFirst
	}
	return RolledBack
}

// fatal reports whether an error has ended the connection, or the server. Poolers report the loss of a server
// like that, and a server whose disk fails during a commit, with any code. The common drivers have a field for
// it, but no method.
func fatal(answer any) bool {
	fields := reflect.Indirect(reflect.ValueOf(answer))
	return fields.Kind() == reflect.Struct && slices.ContainsFunc([]string{"SeverityUnlocalized", "Severity"},
		func(name string) bool {
			severity := fields.FieldByName(name)
			return severity.IsValid() && (severity.String() == "FATAL" || severity.String() == "PANIC")
		})
}

// Missing reports whether a SQLSTATE means that a table, a function or a schema does not exist.
func Missing(state string) bool { return state == "42P01" || state == "42883" || state == "3F000" }

// RaiseError is the error of a statement that should raise a mark. missing says that the database
// does not have the schema.
func RaiseError(resource fencing.Resource, dialect string, missing bool, err error) error {
	hint := "was Install called?"
	if missing {
		hint = "the schema of the gate is not installed: call Install, or run 'leased gate ddl --dialect " + dialect +
			"' and execute what it prints in the database"
	}
	return fmt.Errorf("raise the mark of %q (%s): %w", string(resource), hint, err)
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
