package sqlgate

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// Dialect is a kind of database.
type Dialect string

// The dialects. MySQL is also for MariaDB: this package uses only features that
// both have. Its tests run MariaDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	SQLite   Dialect = "sqlite"
)

// ParseDialect returns the dialect with the given name.
func ParseDialect(name string) (Dialect, error) {
	switch name {
	case "postgres", "postgresql":
		return Postgres, nil
	case "mysql", "mariadb":
		return MySQL, nil
	case "sqlite", "sqlite3":
		return SQLite, nil
	}
	return "", fmt.Errorf("%w: %.40q; use postgres, mysql or sqlite", ErrUnknownDialect, name)
}

// statements are the statements of a dialect.
type statements struct {
	// again, if not empty, is a faster admit for a resource that has a mark. It
	// changes one row if the token is admitted.
	again string
	// admit locks the row of the resource and raises its mark if the rule admits
	// the token.
	admit string
	// mark reads the mark. While the lock of admit is held, it is the mark that
	// admit compared with.
	mark string
}

// admit returns the new mark of the row, which is the token if and only if the
// token was admitted. MariaDB and MySQL need a procedure: MySQL has no RETURNING,
// and LAST_INSERT_ID does not work in a table with triggers.
//
// SQLite has no procedures. Its statements lock the whole database, even for a
// refusal, and the upsert returns no row for a refusal. The first WHERE refuses a
// jump of the first token of a resource. It must not prevent the update of an
// existing row.
var dialects = map[Dialect]statements{
	Postgres: {admit: pgsql.Admit, mark: `SELECT mark FROM leased_marks WHERE resource = $1`},
	MySQL: {
		// Go sends UTF-8, whatever the character set of the connection is.
		admit: `CALL leased_try(CAST(? AS BINARY), ?, ?)`,
		mark:  `SELECT mark FROM leased_marks WHERE resource = ?`,
	},
	SQLite: {
		again: `UPDATE leased_marks SET mark = ?2 WHERE resource = ?1 AND ?2 >= mark AND ?2 - mark <= ?3`,
		admit: admitSQLite,
		mark:  `SELECT mark FROM leased_marks WHERE resource = ?1`,
	},
}

const admitSQLite = `INSERT INTO leased_marks AS m (resource, mark)
SELECT ?1, ?2 WHERE ?2 <= ?3 OR EXISTS (SELECT 1 FROM leased_marks e WHERE e.resource = ?1)
ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark
WHERE excluded.mark >= m.mark AND excluded.mark - m.mark <= ?3
RETURNING mark`

// explain returns the meaning of a driver's error. It uses only what the common
// drivers share, so that this package does not import them.
func (d Dialect) explain(err error) pgsql.Meaning {
	switch d {
	case Postgres:
		if err != nil && rolledBack(err.Error()) {
			return pgsql.RolledBack
		}
		return pgsql.Explain(err)
	case MySQL:
		if errors.Is(err, ErrTransactionEnded) { // a part may be committed
			return pgsql.Unknown
		}
		// 1213 is a deadlock, 1205 a lock wait timeout, 1020 a row that changed
		// after the snapshot.
		switch mysqlNumber(err) {
		case 1213, 1205, 1020:
			return pgsql.Retry
		}
	case SQLite:
		// The low byte is the primary code: 5 is "busy", 6 is "locked".
		var e interface{ Code() int }
		if errors.As(err, &e) && (e.Code()&0xff == 5 || e.Code()&0xff == 6) {
			return pgsql.Retry
		}
	}
	return pgsql.Unknown
}

// missing reports whether a statement of the gate failed because the schema is not installed. SQLite
// has one code for all errors of a statement.
func (d Dialect) missing(err error) bool {
	var postgres interface{ SQLState() string }
	var sqlite interface{ Code() int }
	switch {
	case d == Postgres && errors.As(err, &postgres):
		return pgsql.Missing(postgres.SQLState())
	case d == SQLite && errors.As(err, &sqlite):
		return sqlite.Code() == 1
	}
	return d == MySQL && slices.Contains([]uint64{1146, 1305}, mysqlNumber(err)) // a table, a procedure
}

// rolledBack reports whether PostgreSQL answered COMMIT with ROLLBACK, as it does
// after a failed statement. The server reports no error then; pgx and lib/pq
// create their own.
func rolledBack(message string) bool {
	return strings.Contains(message, "commit unexpectedly resulted in rollback") ||
		strings.Contains(message, "Could not complete operation in a failed transaction")
}

// mysqlNumber returns the error number of MariaDB or MySQL, or 0. The common
// driver has a field for it, but no method.
func mysqlNumber(err error) (number uint64) {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() == reflect.Struct && v.Type().Name() == "MySQLError" {
		if n := v.FieldByName("Number"); n.CanUint() {
			return n.Uint()
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return mysqlNumber(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, joined := range e.Unwrap() {
			number = cmp.Or(number, mysqlNumber(joined))
		}
	}
	return number
}
