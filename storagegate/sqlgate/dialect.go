package sqlgate

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// Dialect is a kind of database.
type Dialect string

// The dialects. MySQL is MariaDB too: what this package needs is the same in
// both, and it is MariaDB that its tests run.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	SQLite   Dialect = "sqlite"
)

// ParseDialect reads a dialect by its name.
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

// statements are what a dialect needs.
type statements struct {
	// again, if not empty, does what admit does for a resource that has a mark,
	// faster. It changes one row if the token passes.
	again string
	// admit locks the row of the resource and raises its mark, if the rule
	// allows it.
	admit string
	// mark reads the mark. While admit's lock is held it is the one that admit
	// saw.
	mark string
}

// The answer to admit is the mark that the row has then: the token if and only
// if that was admitted. MariaDB and MySQL need a procedure for it: one of them
// has no RETURNING, and LAST_INSERT_ID, which could carry the mark, is lost in a
// table with triggers.
//
// SQLite has no procedures. Its statements lock the whole database, whatever the
// rule then says, and the upsert returns no row for a refusal. The first WHERE refuses a
// jump on first use; it must not stop the update of a row that exists.
var dialects = map[Dialect]statements{
	Postgres: {admit: pgsql.Admit, mark: pgsql.Mark},
	MySQL: {
		// Go sends UTF-8, whatever the connection is said to speak.
		admit: `CALL leased_try(CAST(? AS BINARY), ?, ?)`,
		mark:  `SELECT mark FROM leased_marks WHERE resource = ?`,
	},
	SQLite: {
		again: `UPDATE leased_marks SET mark = ?2 WHERE resource = ?1 AND ?2 >= mark AND (?3 = 0 OR ?2 - mark <= ?3)`,
		admit: admitSQLite,
		mark:  `SELECT mark FROM leased_marks WHERE resource = ?1`,
	},
}

const admitSQLite = `INSERT INTO leased_marks AS m (resource, mark)
SELECT ?1, ?2 WHERE ?3 = 0 OR ?2 <= ?3 OR EXISTS (SELECT 1 FROM leased_marks e WHERE e.resource = ?1)
ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark
WHERE excluded.mark >= m.mark AND (?3 = 0 OR excluded.mark - m.mark <= ?3)
RETURNING mark`

// explain reads err by what the usual drivers have in common, so that this
// package needs none of them.
func (d Dialect) explain(err error) pgsql.Meaning {
	switch d {
	case Postgres:
		var e interface{ SQLState() string }
		if errors.As(err, &e) {
			return pgsql.Explain(e.SQLState())
		}
		if err != nil && rolledBack(err.Error()) {
			return pgsql.RolledBack
		}
	case MySQL:
		// 1213 is a deadlock, 1205 a lock wait that took too long, 1020 a row
		// that changed after the snapshot.
		switch mysqlNumber(err) {
		case 1213, 1205, 1020:
			return pgsql.Again
		}
	case SQLite:
		// The low byte is the primary code: 5 is "busy", 6 is "locked".
		var e interface{ Code() int }
		if errors.As(err, &e) && (e.Code()&0xff == 5 || e.Code()&0xff == 6) {
			return pgsql.Again
		}
	}
	return pgsql.Unknown
}

// rolledBack reports whether a driver says that PostgreSQL answered a COMMIT
// with ROLLBACK, as it does after a failed statement. That is an answer, and
// no error of the server: the drivers, pgx and lib/pq, make up their own.
func rolledBack(message string) bool {
	return strings.Contains(message, "commit unexpectedly resulted in rollback") ||
		strings.Contains(message, "Could not complete operation in a failed transaction")
}

// mysqlNumber is the number of a server's error. The usual driver keeps it in a
// field and has no method for it.
func mysqlNumber(err error) uint64 {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() == reflect.Struct && v.Type().Name() == "MySQLError" {
			if n := v.FieldByName("Number"); n.CanUint() {
				return n.Uint()
			}
		}
	}
	return 0
}
