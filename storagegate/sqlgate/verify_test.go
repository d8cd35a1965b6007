package sqlgate_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// requireWeak requires Verify to report these settings, as "name value", and no
// others.
func requireWeak(t *testing.T, driver, dsn string, dialect sqlgate.Dialect, want ...string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	defer db.Close()
	err = sqlgate.Verify(t.Context(), db, dialect)
	if len(want) == 0 {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, storagegate.ErrNotDurable)
	var weak *storagegate.VerifyError
	require.ErrorAs(t, err, &weak)
	var got []string
	for _, w := range weak.Weaknesses {
		require.Contains(t, err.Error(), w.Advice)
		got = append(got, w.Setting+" "+w.Value)
	}
	require.Equal(t, want, got)
}

func TestVerify(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		requireWeak(t, "pgx", postgres.Get(t).DSN, sqlgate.Postgres, "fsync off", "full_page_writes off")
		server, err := testserver.StartDurablePostgres()
		require.NoError(t, err)
		defer server.Stop()
		requireWeak(t, "pgx", server.DSN, sqlgate.Postgres)
		requireWeak(t, "pgx", server.DSN+"&synchronous_commit=off", sqlgate.Postgres, "synchronous_commit off")
	})
	t.Run("mysql", func(t *testing.T) {
		server := mariadb.Get(t)
		requireWeak(t, "mysql", server.DSN, sqlgate.MySQL, "innodb_flush_log_at_trx_commit 2")
		execute(t, storage{sqlgate.MySQL, "mysql", server.DSN}, `SET GLOBAL innodb_flush_log_at_trx_commit = 1`)
		defer execute(t, storage{sqlgate.MySQL, "mysql", server.DSN}, `SET GLOBAL innodb_flush_log_at_trx_commit = 2`)
		requireWeak(t, "mysql", server.DSN, sqlgate.MySQL)
		durable, err := testserver.StartDurableMariaDB("--log-bin")
		require.NoError(t, err)
		defer durable.Stop()
		requireWeak(t, "mysql", durable.DSN, sqlgate.MySQL, "sync_binlog 0")
		for _, settings := range []string{"innodb_flush_log_at_trx_commit = 3",
			"innodb_flush_log_at_trx_commit = 1, sync_binlog = 1"} {
			execute(t, storage{sqlgate.MySQL, "mysql", durable.DSN}, `SET GLOBAL `+settings)
			requireWeak(t, "mysql", durable.DSN, sqlgate.MySQL)
		}
	})
	t.Run("sqlite", func(t *testing.T) {
		s := newStorage(t, sqlgate.SQLite)
		requireWeak(t, s.driver, s.dsn, sqlgate.SQLite, "synchronous 0")
		requireWeak(t, s.driver, strings.Replace(s.dsn, "synchronous(OFF)", "synchronous(NORMAL)", 1), sqlgate.SQLite,
			"synchronous 1")
		requireWeak(t, s.driver, strings.Replace(s.dsn, "synchronous(OFF)", "synchronous(FULL)", 1), sqlgate.SQLite)
		requireWeak(t, s.driver, "file:"+t.TempDir()+"/x.db?_pragma=synchronous(FULL)&_pragma=journal_mode(MEMORY)",
			sqlgate.SQLite, "journal_mode memory")
		rollback := "file:" + t.TempDir() + "/x.db?_pragma=journal_mode(DELETE)"
		requireWeak(t, s.driver, rollback+"&_pragma=synchronous(FULL)", sqlgate.SQLite,
			"synchronous with journal_mode=DELETE 2")
		requireWeak(t, s.driver, rollback+"&_pragma=synchronous(EXTRA)", sqlgate.SQLite)
	})
	require.ErrorIs(t, sqlgate.Verify(t.Context(), nil, "oracle"), sqlgate.ErrUnknownDialect)
}
