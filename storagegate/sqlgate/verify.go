package sqlgate

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/leased-project/leased/storagegate"
)

// setting is a setting that Verify reads.
type setting struct {
	name   string
	query  string // without it, postgresSetting
	good   []string
	advice string
}

// postgresSetting reads the setting $1, which older servers may not have.
const postgresSetting = `SELECT COALESCE(current_setting($1, true), '')`

var settings = map[Dialect][]setting{
	Postgres: {
		{name: "fsync", good: []string{"on"},
			advice: "set it to on, because a power failure can damage the database otherwise"},
		{name: "full_page_writes", good: []string{"on"},
			advice: "set it to on, because a power failure can damage the database otherwise"},
		{name: "synchronous_commit", good: []string{"on", "local", "remote_write", "remote_apply"},
			advice: "set it to on or local, because a crash loses the last marks otherwise"},
		{name: "in_hot_standby", good: []string{"off", ""}, advice: "connect to the primary"},
	},
	MySQL: {
		{name: "innodb_flush_log_at_trx_commit", query: `SELECT @@innodb_flush_log_at_trx_commit`,
			good: []string{"1", "3"}, advice: "set it to 1, because a crash loses the last marks otherwise"},
		// With 1 and a binary log, commits are recovered from that log. With 3, which only MariaDB has, they are not.
		{name: "sync_binlog", query: `SELECT IF(@@log_bin AND @@innodb_flush_log_at_trx_commit <> 3, @@sync_binlog, 1)`,
			good: []string{"1"}, advice: "set it to 1, because a power failure loses the last marks otherwise: " +
				"the server rolls back transactions that its binary log does not have"},
	},
	SQLite: {
		{name: "synchronous", query: `PRAGMA synchronous`, good: []string{"2", "3"},
			advice: "set it to FULL (2), because a power failure loses the last marks otherwise"},
		{name: "journal_mode", query: `PRAGMA journal_mode`, good: []string{"wal", "delete", "truncate", "persist"},
			advice: "set it to WAL, because a crash can damage the database otherwise"},
		// A transaction is committed when its journal is deleted. Only EXTRA syncs the folder then.
		{name: "synchronous with journal_mode=DELETE", good: []string{"", "0", "1", "3"},
			query: `SELECT iif(journal_mode = 'delete', synchronous, '') FROM pragma_journal_mode, pragma_synchronous`,
			advice: "set it to EXTRA (3), or journal_mode to WAL, because a power failure loses the last marks otherwise: " +
				"the journal can reappear, which rolls back the last commit"},
	},
}

var servers = map[Dialect]string{Postgres: "PostgreSQL", MySQL: "MariaDB or MySQL", SQLite: "SQLite"}

// Verify checks that a commit survives a crash of the server and a power failure,
// with the settings of a connection of db. It returns a *storagegate.VerifyError
// that says what to set. It does not check replication: a failover to a replica
// without synchronous replication loses the last marks.
func Verify(ctx context.Context, db *sql.DB, dialect Dialect) error {
	if _, ok := settings[dialect]; !ok {
		return fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	var found []storagegate.Weakness
	for _, s := range settings[dialect] {
		query, args := s.query, []any(nil)
		if query == "" {
			query, args = postgresSetting, []any{s.name}
		}
		var value string
		if err := db.QueryRowContext(ctx, query, args...).Scan(&value); err != nil {
			return fmt.Errorf("read the setting %s of the database: %w", s.name, err)
		}
		if !slices.Contains(s.good, strings.ToLower(value)) {
			found = append(found, storagegate.Weakness{
				Server: servers[dialect], Setting: s.name, Value: value, Advice: s.advice})
		}
	}
	return storagegate.Verified(found)
}
