package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

func TestMarksAreNeverLoweredOrDeleted(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			gate, db := s.gate(t, fencing.Rule{}), s.open(t)
			require.NoError(t, gate.Enter(t.Context(), "orders", 9))
			statements := []string{
				`UPDATE leased_marks SET mark = 8`,
				`UPDATE leased_marks SET mark = -1`,
				`UPDATE leased_marks SET mark = 9007199254740992`,
				`UPDATE leased_marks SET mark = NULL`,
				`UPDATE leased_marks SET resource = 'invoices'`,
				`DELETE FROM leased_marks`,
				`DELETE FROM leased_marks WHERE resource = 'orders'`,
			}
			switch dialect {
			case sqlgate.Postgres:
				statements = append(statements, `TRUNCATE leased_marks`)
			case sqlgate.MySQL:
				statements = append(statements, `REPLACE INTO leased_marks VALUES ('orders', 1)`)
			}
			for _, statement := range statements {
				require.Error(t, try(t, db, statement), statement)
			}
			if dialect == sqlgate.SQLite {
				require.NoError(t, try(t, db, `INSERT OR REPLACE INTO leased_marks VALUES ('orders', 1)`),
					"the statement is ignored")
				requireNoRowIDs(t, db)
			}
			mark, err := gate.Mark(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, fencing.Token(9), mark)
		})
	}
}

// requireNoRowIDs tries to replace a mark by its row id, which would delete it
// without firing the triggers.
func requireNoRowIDs(t *testing.T, db *sql.DB) {
	t.Helper()
	require.NoError(t, try(t, db, `INSERT INTO leased_marks VALUES ('invoices', 1)`))
	for _, id := range []string{"rowid", "oid", "_rowid_"} {
		_ = try(t, db, `INSERT OR REPLACE INTO leased_marks (`+id+`, resource, mark) VALUES (1, 'decoy', 0)`)
		_ = try(t, db, `UPDATE OR REPLACE leased_marks SET `+id+` = 1 WHERE resource = 'invoices'`)
	}
	_ = try(t, db, `UPDATE OR REPLACE leased_marks SET resource = 'orders' WHERE resource = 'invoices'`)
}

func TestInstallRunsRepeatedlyAndConcurrently(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
			errs := make([]error, 4)
			var all sync.WaitGroup
			for i := range errs {
				gate := s.gate(t, fencing.Rule{})
				all.Go(func() { errs[i] = gate.Install(t.Context()) })
			}
			all.Wait()
			for _, err := range errs {
				require.NoError(t, err)
			}
			mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, fencing.Token(9), mark, "installing again keeps the marks")
		})
	}
}

// Programs that start at the same time can install at the same time, also if transactions see only what was committed
// before they began, and so can operators with psql.
func TestFirstInstallationsAtOnce(t *testing.T) {
	text, err := sqlgate.DDL(sqlgate.Postgres)
	require.NoError(t, err)
	signed, err := sqlgate.SignedDDL(sqlgate.Postgres)
	require.NoError(t, err)
	for name, install := range map[string]func(s storage) error{
		"Install": func(s storage) error { return s.gate(t, fencing.Rule{}).Install(t.Context()) },
		"DDL":     func(s storage) error { return runBlock(t, s, text) },
		"signed":  func(s storage) error { return errors.Join(runBlock(t, s, text), runBlock(t, s, signed)) },
	} {
		t.Run(name, func(t *testing.T) {
			server := postgres.Get(t)
			schema := fmt.Sprintf("case_%d", made.Add(1))
			execute(t, storage{sqlgate.Postgres, "pgx", server.DSN}, "CREATE SCHEMA "+schema)
			s := storage{sqlgate.Postgres, "pgx",
				server.DSN + "&default_transaction_isolation=serializable&search_path=" + schema}
			errs := make([]error, 6)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = install(s) })
			}
			all.Wait()
			require.NoError(t, errors.Join(errs...))
			require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
		})
	}
}

// TestInstallDoesNotWaitForWriters installs again inside a gated transaction, for
// which it must not wait.
func TestInstallDoesNotWaitForWriters(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			if dialect == sqlgate.MySQL { // one of the settings that change the meaning of a text
				s.dsn += "?sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES%27"
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			other := s.gate(t, fencing.Rule{})
			require.NoError(t, s.gate(t, fencing.Rule{}).Do(ctx, "orders", 1, func(*sql.Tx) error { return other.Install(ctx) }))
		})
	}
}

func TestDDLContainsEveryMigration(t *testing.T) {
	for _, dialect := range dialects {
		text, err := sqlgate.DDL(dialect)
		require.NoError(t, err)
		migrations, err := sqlgate.Migrations(dialect)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(migrations), 2)
		for _, m := range migrations {
			require.Contains(t, text, m.SQL)
		}
		require.Contains(t, text, "leased_fence")
	}
	_, err := sqlgate.DDL("oracle")
	require.ErrorIs(t, err, sqlgate.ErrUnknownDialect)
}

func TestParseDialect(t *testing.T) {
	for name, want := range map[string]sqlgate.Dialect{"postgres": sqlgate.Postgres, "postgresql": sqlgate.Postgres,
		"mysql": sqlgate.MySQL, "mariadb": sqlgate.MySQL, "sqlite": sqlgate.SQLite, "sqlite3": sqlgate.SQLite} {
		got, err := sqlgate.ParseDialect(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := sqlgate.ParseDialect("oracle")
	require.ErrorIs(t, err, sqlgate.ErrUnknownDialect)
	_, err = sqlgate.New(nil, "oracle", fencing.Rule{})
	require.ErrorIs(t, err, sqlgate.ErrUnknownDialect)
}
