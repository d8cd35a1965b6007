package sqlgate

import (
	"fmt"
	"strings"
)

// SignedDDL returns the schema for signed tokens as text for psql: the function
// leased_fence_signed, which admits only tokens that the lock service has signed,
// and leased_guard_signed for tables. It needs the schema of DDL, and fails if every
// user may create objects in the schema. It is one transaction, so that psql installs
// nothing after an error. Only PostgreSQL has numbers that are wide enough; for others
// the error is ErrCannotVerify.
func SignedDDL(dialect Dialect) (string, error) {
	if dialect != Postgres {
		return "", fmt.Errorf("%w: %s", ErrCannotVerify, dialect)
	}
	all, err := migrations("schema/postgres/signed/*.sql")
	return concatenated(dialect, all), err
}

// SignedGuard is Guard for a table that accepts only writes with signed tokens. It
// needs the schema of SignedDDL.
func SignedGuard(dialect Dialect, t GuardedTable) (string, error) {
	if dialect != Postgres {
		return "", fmt.Errorf("%w: %s", ErrCannotVerify, dialect)
	}
	if t.AllowUnfenced {
		return "", fmt.Errorf("%w: a table that requires signed tokens cannot allow writes without one", ErrInvalidTable)
	}
	text, err := Guard(dialect, t)
	if err != nil {
		return "", err
	}
	signed := strings.NewReplacer("leased_guard(", "leased_guard_signed(", "leased_fence(", "leased_fence_signed(")
	return signed.Replace(text), nil
}
