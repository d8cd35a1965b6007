package sqlgate

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// Verify checks that a commit survives a crash of the server and a power failure,
// with the settings of a connection of db. It returns a *storagegate.VerifyError
// that says what to set. It does not check replication: a failover to a replica
// without synchronous replication loses the last marks.
func Verify(ctx context.Context, db *sql.DB, dialect Dialect) error {
	var found []storagegate.Weakness
	var err error
	switch dialect {
	case Postgres:
		found, err = verifyPostgres(ctx, db)
	case MySQL:
		found, err = verifySetting(ctx, db, `SELECT @@innodb_flush_log_at_trx_commit`, storagegate.Weakness{Server: "MariaDB or MySQL",
			Setting: "innodb_flush_log_at_trx_commit", Advice: "set it to 1, because a crash loses the last marks otherwise"}, "1")
	case SQLite:
		found, err = verifySQLite(ctx, db)
	default:
		return fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	if err != nil {
		return fmt.Errorf("read the settings of the database: %w", err)
	}
	return storagegate.Verified(found)
}

func verifyPostgres(ctx context.Context, db *sql.DB) ([]storagegate.Weakness, error) {
	rows, err := db.QueryContext(ctx, pgsql.Settings)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[name] = value
	}
	return pgsql.Weaknesses(settings), rows.Err()
}

func verifySQLite(ctx context.Context, db *sql.DB) ([]storagegate.Weakness, error) {
	synchronous, err := verifySetting(ctx, db, `PRAGMA synchronous`, storagegate.Weakness{Server: "SQLite", Setting: "synchronous",
		Advice: "set it to FULL (2), because a power failure loses the last marks otherwise"}, "2", "3")
	if err != nil {
		return nil, err
	}
	journal, err := verifySetting(ctx, db, `PRAGMA journal_mode`, storagegate.Weakness{Server: "SQLite", Setting: "journal_mode",
		Advice: "set it to WAL or DELETE, because a crash can damage the database otherwise"}, "wal", "delete", "truncate", "persist")
	return append(synchronous, journal...), err
}

// verifySetting returns the weakness unless the query returns a good value.
func verifySetting(ctx context.Context, db *sql.DB, query string, weakness storagegate.Weakness, good ...string) ([]storagegate.Weakness, error) {
	err := db.QueryRowContext(ctx, query).Scan(&weakness.Value)
	if err != nil || slices.Contains(good, strings.ToLower(weakness.Value)) {
		return nil, err
	}
	return []storagegate.Weakness{weakness}, nil
}
