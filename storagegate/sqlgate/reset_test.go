package sqlgate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

const absurd = fencing.MaxToken - 1

// poisoned returns a storage in which resource is fenced with an absurd token.
func poisoned(t *testing.T, dialect sqlgate.Dialect, resource fencing.Resource) storage {
	t.Helper()
	s := newStorage(t, dialect)
	require.NoError(t, s.gate(t, fencing.Rule{MaxJump: fencing.Unbounded}).Enter(t.Context(), resource, absurd))
	return s
}

// The printed SQL does what Reset does, for every name.
func TestResetSQL(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			for _, name := range []fencing.Resource{"orders/42", `it's`, `a\b'; DROP TABLE leased_marks; --`, "é/日本"} {
				s := poisoned(t, dialect, name)
				gate := s.gate(t, fencing.Rule{})
				text, err := sqlgate.ResetSQL(dialect, name, absurd, 52)
				require.NoError(t, err)
				require.NoError(t, runBlock(t, s, text))
				mark, err := gate.Mark(t.Context(), name)
				require.NoError(t, err)
				require.Equal(t, fencing.Token(52), mark)
				require.Error(t, runBlock(t, s, text), "a second reset must fail: the mark has changed")
				require.ErrorIs(t, gate.Enter(t.Context(), name, 51), fencing.ErrStale)
				require.NoError(t, gate.Enter(t.Context(), name, 53))
			}
			_, err := sqlgate.ResetSQL(dialect, "orders", 52, 53)
			require.ErrorIs(t, err, storagegate.ErrNotLower)
		})
	}
	_, err := sqlgate.ResetSQL("oracle", "orders", 52, 51)
	require.ErrorIs(t, err, sqlgate.ErrUnknownDialect)
}

// A reset whose statement fails is an error, also if the mark is still the expected one.
func TestFailedResetIsAnError(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := poisoned(t, dialect, "orders")
			gate := s.gate(t, fencing.Rule{})
			_, err := s.open(t).Exec(`DROP TABLE leased_resets`)
			require.NoError(t, err)
			require.ErrorContains(t, gate.Reset(t.Context(), "orders", absurd, 52), "leased_resets")
			mark, err := gate.Mark(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, absurd, mark)
		})
	}
}

// The database itself refuses to raise a mark, to remove it, or to lower another
// one than the expected mark, for programs in any language.
func TestDatabaseChecksTheReset(t *testing.T) {
	call := map[sqlgate.Dialect]string{
		sqlgate.Postgres: `SELECT leased_reset('orders', `,
		sqlgate.MySQL:    `CALL leased_reset('orders', `,
		sqlgate.SQLite:   `INSERT INTO leased_reset (resource, expected, mark) VALUES ('orders', `,
	}
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := poisoned(t, dialect, "orders")
			db := s.open(t)
			for _, arguments := range []string{`51, 50)`, `9007199254740990, 9007199254740991)`,
				`9007199254740990, 9007199254740990)`,
				`9007199254740990, 0)`, `9007199254740990, -1)`, `9007199254740990, NULL)`, `NULL, 52)`} {
				require.ErrorContains(t, try(t, db, call[dialect]+arguments), "mark", arguments)
			}
			mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, absurd, mark)
			var left int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM leased_resets`).Scan(&left))
			require.Zero(t, left, "a reset leaves no permission behind")
			require.NoError(t, try(t, db, call[dialect]+`9007199254740990, 52)`))
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM leased_resets`).Scan(&left))
			require.Zero(t, left)
			require.Error(t, try(t, db, `UPDATE leased_marks SET mark = 51`), "marks are not lowered otherwise")
		})
	}
}

// A user who may write through the gate may not reset marks.
func TestWriterCannotReset(t *testing.T) {
	s := poisoned(t, sqlgate.Postgres, "orders")
	createWriter(t, s, "leased_marks")
	err := runBlock(t, s, `SET ROLE shop_writer; SELECT leased_fence('orders', 9007199254740990);
		SELECT leased_reset('orders', 9007199254740990, 52)`)
	require.ErrorContains(t, err, "permission denied for table leased_resets")
	err = runBlock(t, s, `SET ROLE shop_writer; UPDATE leased_marks SET mark = 52`)
	require.ErrorContains(t, err, "cannot be lowered")
	mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, absurd, mark)
}

// Default privileges, which some frameworks set for the role of an application, give it no rights on the tables of
// leased. Rights that an operator grants survive the next installation.
func TestDefaultPrivilegesDoNotReachMarks(t *testing.T) {
	server := postgres.Get(t)
	schema := fmt.Sprintf("defaults_%d", made.Add(1))
	app := schema + "_app"
	execute(t, storage{sqlgate.Postgres, "pgx", server.DSN}, `CREATE SCHEMA `+schema, `CREATE ROLE `+app,
		`GRANT USAGE ON SCHEMA `+schema+` TO `+app,
		`ALTER DEFAULT PRIVILEGES IN SCHEMA `+schema+` GRANT ALL ON TABLES TO `+app,
		`ALTER DEFAULT PRIVILEGES IN SCHEMA `+schema+` GRANT SELECT ON TABLES TO PUBLIC`,
		`ALTER DEFAULT PRIVILEGES IN SCHEMA `+schema+` GRANT EXECUTE ON FUNCTIONS TO `+app)
	s := storage{sqlgate.Postgres, "pgx", server.DSN + "&search_path=" + schema}
	install := func() {
		t.Helper()
		require.NoError(t, s.gate(t, fencing.Rule{}).Install(t.Context()))
		text, err := sqlgate.SignedDDL(sqlgate.Postgres)
		require.NoError(t, err)
		require.NoError(t, runBlock(t, s, text))
	}
	install()
	refused := func(table, statement string) {
		t.Helper()
		err := runBlock(t, s, `SET ROLE `+app+`; `+statement)
		require.ErrorContains(t, err, "permission denied for table "+table, statement)
	}
	const raise, reset = `SELECT leased_fence('orders', 52)`, `SELECT leased_reset('orders', 52, 51)`
	refused("leased_marks", raise)
	refused("leased_marks", `TRUNCATE leased_marks`)
	refused("leased_resets", reset)
	refused("leased_resets", `INSERT INTO leased_resets VALUES ('orders', 52, 51)`)
	refused("leased_keys", `SELECT leased_trust_key('`+strings.Repeat("00", 32)+`')`)
	refused("leased_keys", `DELETE FROM leased_keys`)
	refused("leased_signed", `SELECT FROM leased_signed`)

	execute(t, s, `GRANT SELECT, INSERT, UPDATE ON leased_marks TO `+app)
	install()
	require.NoError(t, runBlock(t, s, `SET ROLE `+app+`; `+raise))
	refused("leased_resets", reset)
}

// createWriter lets the role shop_writer write to a table of PostgreSQL.
func createWriter(t *testing.T, s storage, table string) {
	t.Helper()
	require.NoError(t, runBlock(t, s, `
		GRANT TEMPORARY ON DATABASE postgres TO PUBLIC;
		DO $$ BEGIN CREATE ROLE shop_writer; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
		DO $$ BEGIN
			EXECUTE format('GRANT USAGE ON SCHEMA %I TO shop_writer', current_schema());
			GRANT SELECT, INSERT, UPDATE ON `+table+` TO shop_writer;
		END $$`))
}

// A temporary table of the writer does not permit a reset.
func TestResetIgnoresTemporaryTables(t *testing.T) {
	s := poisoned(t, sqlgate.Postgres, "orders")
	createWriter(t, s, "leased_marks")
	err := runBlock(t, s, `SET ROLE shop_writer;
		CREATE TEMPORARY TABLE leased_resets AS
			SELECT 'orders'::text AS resource, 9007199254740990::bigint AS expected, 52::bigint AS mark;
		UPDATE leased_marks SET mark = 52`)
	require.ErrorContains(t, err, "cannot be lowered")
	mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, absurd, mark)
}
