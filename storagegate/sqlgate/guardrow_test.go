package sqlgate_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// install adds a guard to a table.
func install(t *testing.T, s storage, table sqlgate.GuardedTable) error {
	t.Helper()
	text, err := sqlgate.Guard(s.dialect, table)
	require.NoError(t, err)
	return runBlock(t, s, text)
}

// A guard must refuse a row whose resource it cannot determine.
func TestPostgresGuardRefusesRowsWithoutAResource(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	execute(t, s, `CREATE TABLE docs (pk int PRIMARY KEY, name text, code char(8), v int)`,
		`INSERT INTO docs VALUES (1, 'a', 'a', 0), (2, NULL, 'b', 0), (3, 'c', 'c', 0)`)
	docs := func(column string) sqlgate.GuardedTable {
		return sqlgate.GuardedTable{Table: "docs", Column: column, Prefix: "doc/", AllowUnfenced: true}
	}
	require.ErrorContains(t, install(t, s, docs("nmae")), "has no column 'nmae'")
	require.ErrorContains(t, install(t, s, docs("Name")), "has no column 'Name'")
	require.ErrorContains(t, install(t, s, docs("code")), "is char(n)")
	require.NoError(t, install(t, s, docs("name")))

	db := s.open(t)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "doc/a", 34))
	const refusal = "cannot be determined from its column"
	require.ErrorContains(t, try(t, db, `UPDATE docs SET v = 1 WHERE pk = 2`), refusal, "the column is NULL")
	require.ErrorContains(t, try(t, db, `UPDATE docs SET name = NULL WHERE pk = 3`), refusal)
	require.ErrorContains(t, try(t, db, `INSERT INTO docs VALUES (4, NULL, '', 0)`), refusal)
	require.NoError(t, try(t, db, `ALTER TABLE docs RENAME name TO title`))
	require.ErrorContains(t, try(t, db, `UPDATE docs SET v = 1 WHERE pk = 1`), refusal,
		"the column was renamed after the guard was created")
	require.ErrorContains(t, try(t, db, `DELETE FROM docs WHERE pk = 1`), refusal)
	for _, arguments := range []string{`'doc/', 'NAME'`, `'doc/', 'code'`, `'doc/'`, ``} { // created by hand
		require.NoError(t, try(t, db, `DROP TRIGGER leased_guard ON docs`))
		require.NoError(t, try(t, db, `CREATE TRIGGER leased_guard AFTER INSERT OR UPDATE OR DELETE ON docs
			FOR EACH ROW EXECUTE FUNCTION leased_guard(`+arguments+`)`))
		require.ErrorContains(t, try(t, db, `UPDATE docs SET v = 1 WHERE pk = 1`), refusal, arguments)
	}
}

// A lock on the row of the mark is not a proof of a token.
func TestPostgresGuardIgnoresOtherLocks(t *testing.T) {
	s, db := guarded(t, sqlgate.Postgres)
	execute(t, s, `CREATE TABLE notes (resource text REFERENCES leased_marks, note text)`)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "account/7", 34))
	for _, locks := range []string{`INSERT INTO notes VALUES ('account/7', 'a foreign key locks the mark')`,
		`SELECT FROM leased_marks WHERE resource = 'account/7' FOR KEY SHARE`,
		`SELECT FROM leased_marks WHERE resource = 'account/7' FOR UPDATE`} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), locks)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), `UPDATE accounts SET balance = 0 WHERE id = 7`)
		require.ErrorContains(t, err, "no fencing token", locks)
		require.NoError(t, tx.Rollback())
	}
	require.Equal(t, 100, balance(t, db, 7))
}

// A temporary table of the writer does not replace the marks.
func TestPostgresGuardIgnoresTemporaryTables(t *testing.T) {
	s, db := guarded(t, sqlgate.Postgres)
	createWriter(t, s, "accounts")
	err := runBlock(t, s, `SET ROLE shop_writer;
		CREATE TEMPORARY TABLE leased_marks AS SELECT 'account/7'::text AS resource, 5::bigint AS mark;
		SELECT set_config('leased.claims', E'5 account/7\n', false);
		UPDATE accounts SET balance = 0 WHERE id = 7`)
	require.ErrorContains(t, err, "permission denied for table leased_marks")
	require.Equal(t, 100, balance(t, db, 7))
}

// The guard looks at all claims of a transaction for each row, so a bulk load adds none.
func TestPostgresBulkLoadKeepsNoClaims(t *testing.T) {
	s, db := guardedAs(t, sqlgate.Postgres, sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/",
		AllowUnfenced: true})
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "account/9", 34))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, test := range []struct{ statement, claims string }{
		{`INSERT INTO accounts SELECT g, 0 FROM generate_series(10, 30) g`, ""},
		{`UPDATE accounts SET balance = 1 WHERE id > 10`, ""},
		{`SELECT leased_try('account/9', 33), leased_try('account/40', 9007199254740991)`, ""},
		{`SELECT leased_try('account/9', 34), leased_fence('account/9', 35)`, "34 account/9\n35 account/9\n"},
	} {
		_, err := tx.ExecContext(t.Context(), test.statement)
		require.NoError(t, err, test.statement)
		var claims string
		require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT coalesce(current_setting('leased.claims', true), '')`).
			Scan(&claims))
		require.Equal(t, test.claims, claims, test.statement)
	}
}

// The key of such a row is known only after the insert.
func TestGuardChecksGeneratedKeys(t *testing.T) {
	for dialect, key := range map[sqlgate.Dialect]string{
		sqlgate.Postgres: `id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY`,
		sqlgate.MySQL:    `id int AUTO_INCREMENT PRIMARY KEY`,
		sqlgate.SQLite:   `id INTEGER PRIMARY KEY`,
	} {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			execute(t, s, `CREATE TABLE orders (`+key+`, v int, fencing_token bigint)`)
			require.NoError(t, install(t, s, sqlgate.GuardedTable{Table: "orders", Column: "id", Prefix: "order/",
				AllowUnfenced: true}))
			db, gate := s.open(t), s.gate(t, fencing.Rule{})
			require.NoError(t, try(t, db, `INSERT INTO orders (v) VALUES (1)`), "the resource was never fenced")
			require.NoError(t, gate.Enter(t.Context(), "order/2", 34))
			require.Error(t, try(t, db, `INSERT INTO orders (v) VALUES (2)`), "2 is fenced")
			var rows int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&rows))
			require.Equal(t, 1, rows, "a refused row must be rolled back")
			require.NoError(t, try(t, db, `INSERT INTO orders (id, v) VALUES (50, 3)`))
			require.NoError(t, try(t, db, `DELETE FROM orders WHERE id = 50`))
			if dialect == sqlgate.Postgres {
				return // rows of PostgreSQL contain no tokens
			}
			requireTokensInRows(t, s, db)
		})
	}
}

// requireTokensInRows inserts rows with tokens, also several in one statement.
func requireTokensInRows(t *testing.T, s storage, db *sql.DB) {
	t.Helper()
	ctx, gate := t.Context(), s.gate(t, fencing.Rule{})
	require.NoError(t, gate.Enter(ctx, "order/60", 34))
	require.Error(t, try(t, db, `INSERT INTO orders (id, v, fencing_token) VALUES (60, 1, 33)`))
	require.Error(t, try(t, db, `REPLACE INTO orders (id, v, fencing_token) VALUES (60, 1, 33)`))
	require.Error(t, try(t, db, `INSERT INTO orders (id, v, fencing_token) VALUES (59, 1, 35), (60, 1, NULL)`),
		"a token is valid for its own row only")
	require.NoError(t, try(t, db, `INSERT INTO orders (id, v, fencing_token)
		VALUES (60, 1, 34), (61, 1, 7), (62, 1, NULL)`))
	for id, want := range map[string]fencing.Token{"60": 34, "61": 7, "62": 0} {
		mark, err := gate.Mark(ctx, fencing.Resource("order/"+id))
		require.NoError(t, err)
		require.Equal(t, want, mark, "the mark must be the token of the row")
	}
	var stored int
	require.NoError(t, db.QueryRowContext(ctx,
		`SELECT count(*) FROM orders WHERE fencing_token IS NOT NULL`).Scan(&stored))
	require.Zero(t, stored)
}

// A row without a name has no resource and must be refused.
func TestGuardRefusesRowsWithoutAName(t *testing.T) {
	for dialect, statements := range map[sqlgate.Dialect][]string{
		sqlgate.MySQL: {`INSERT INTO docs (pk) VALUES (1)`, `UPDATE docs SET name = NULL`},
		sqlgate.SQLite: {`INSERT INTO docs (pk) VALUES (1)`, `INSERT OR IGNORE INTO docs (pk) VALUES (1)`,
			`INSERT OR REPLACE INTO docs (pk) VALUES (1)`, `UPDATE docs SET name = NULL`,
			`UPDATE OR IGNORE docs SET name = NULL, fencing_token = 1`,
			`UPDATE OR IGNORE docs SET name = printf('%512c', 'x'), fencing_token = 1`,
			`INSERT OR IGNORE INTO docs (pk, name) VALUES (3, printf('%512c', 'x'))`},
	} {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			execute(t, s, `CREATE TABLE docs (pk int PRIMARY KEY, name varchar(40), fencing_token bigint)`)
			require.NoError(t, install(t, s, sqlgate.GuardedTable{Table: "docs", Column: "name", Prefix: "doc/",
				AllowUnfenced: true}))
			db := s.open(t)
			require.NoError(t, try(t, db, `INSERT INTO docs (pk, name) VALUES (2, 'a')`))
			for _, statement := range statements {
				require.Error(t, try(t, db, statement), statement)
			}
		})
	}
}

// The name of a resource must not depend on the character set of the connection.
func TestMySQLFenceDoesNotDependOnTheConnection(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	latin := s
	latin.dsn += "?charset=latin1"
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "doc/é", 50))
	db := latin.open(t)
	const fence = "CALL leased_fence('doc/\xe9', 49)" // as a program with latin1 sends it
	require.ErrorContains(t, try(t, db, fence), "stale fencing token 49")
	mark, err := latin.gate(t, fencing.Rule{}).Mark(t.Context(), "doc/é")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(50), mark)
	require.ErrorIs(t, latin.gate(t, fencing.Rule{}).Enter(t.Context(), "doc/é", 49), fencing.ErrStale,
		"Go sends UTF-8, whatever the character set of the connection is")
}
