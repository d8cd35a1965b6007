package sqlgate_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// guarded creates a guarded table of accounts that refuses every write without a
// token.
func guarded(t *testing.T, dialect sqlgate.Dialect) (storage, *sql.DB) {
	t.Helper()
	return guardedAs(t, dialect, sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/"})
}

func guardedAs(t *testing.T, dialect sqlgate.Dialect, table sqlgate.GuardedTable) (storage, *sql.DB) {
	t.Helper()
	s := newStorage(t, dialect)
	execute(t, s, `CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL, fencing_token bigint)`,
		`INSERT INTO accounts (id, balance) VALUES (7, 100), (8, 100)`)
	text, err := sqlgate.Guard(dialect, table)
	require.NoError(t, err)
	if dialect == sqlgate.MySQL {
		execute(t, s, sqlgate.SplitMySQL(text)...)
	} else {
		execute(t, s, text)
		execute(t, s, text) // running it again has no effect
	}
	return s, s.open(t)
}

func balance(t *testing.T, db *sql.DB, id int) (balance int) {
	t.Helper()
	var token sql.NullInt64
	row := db.QueryRowContext(t.Context(),
		"SELECT balance, fencing_token FROM accounts WHERE id = "+fencing.Token(id).String())
	require.NoError(t, row.Scan(&balance, &token))
	require.False(t, token.Valid, "the token of the row must not be stored")
	return balance
}

func try(t *testing.T, db *sql.DB, statement string) error {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	return err
}

// A guard refuses writes without a token from the moment it exists: of rows that
// were there before, and of new ones.
func TestGuardIsClosedFromTheBeginning(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s, db := guarded(t, dialect)
			for _, statement := range []string{
				`UPDATE accounts SET balance = 0 WHERE id = 7`,
				`UPDATE accounts SET balance = 0`,
				`DELETE FROM accounts WHERE id = 7`,
				`DELETE FROM accounts`,
				`INSERT INTO accounts (id, balance) VALUES (9, 1)`,
			} {
				require.ErrorContains(t, try(t, db, statement), "no fencing token", statement)
			}
			require.Equal(t, 100, balance(t, db, 7))
			for _, id := range []fencing.Resource{"account/7", "account/9"} {
				mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, fencing.None, mark)
			}
			if dialect == sqlgate.SQLite {
				require.NoError(t, try(t, db, `UPDATE accounts SET balance = 50, fencing_token = 1 WHERE id = 7`))
			} else {
				require.NoError(t, s.gate(t, fencing.Rule{}).Do(t.Context(), "account/7", 1, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), `UPDATE accounts SET balance = 50 WHERE id = 7`)
					return err
				}))
			}
			require.Equal(t, 50, balance(t, db, 7))
		})
	}
}

// The guard can be replaced by one that allows unfenced writes, for a bulk load,
// and back.
func TestGuardCanBeReplaced(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s, db := guarded(t, dialect)
			accounts := sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/"}
			load := func(id int) error {
				return try(t, db, `INSERT INTO accounts (id, balance) VALUES (`+strconv.Itoa(id)+`, 1)`)
			}
			require.Error(t, load(20))
			accounts.AllowUnfenced = true
			require.NoError(t, install(t, s, accounts))
			require.NoError(t, load(20))
			accounts.AllowUnfenced = false
			require.NoError(t, install(t, s, accounts))
			require.Error(t, load(21))
		})
	}
}

func TestGuardRefusesUncheckedWrites(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s, db := guardedAs(t, dialect, sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/",
				AllowUnfenced: true})
			require.NoError(t, try(t, db, `UPDATE accounts SET balance = 90 WHERE id = 7`),
				"a resource that was never fenced needs no token")
			require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "account/7", 34))

			require.Error(t, try(t, db, `UPDATE accounts SET balance = 0 WHERE id = 7`))
			require.Error(t, try(t, db, `UPDATE accounts SET balance = 0`),
				"the guard also checks a statement that changes many rows")
			require.Error(t, try(t, db, `DELETE FROM accounts WHERE id = 7`))
			require.Error(t, try(t, db, `UPDATE accounts SET id = 70 WHERE id = 7`), "the key of the row must not be changed")
			require.Error(t, try(t, db, `UPDATE accounts SET id = 7 WHERE id = 8`), "another row must not get its key")
			require.Equal(t, 90, balance(t, db, 7))
			require.NoError(t, try(t, db, `UPDATE accounts SET balance = 50 WHERE id = 8`), "other rows are other resources")
			require.NoError(t, try(t, db, `DELETE FROM accounts WHERE id = 8`))
			require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "account/9", 1))
			require.Error(t, try(t, db, `INSERT INTO accounts (id, balance) VALUES (9, 1)`))
		})
	}
}

// TestGuardAdmitsTheHolder writes to a guarded table through the gate, or with the
// token in the row, depending on the dialect.
func TestGuardAdmitsTheHolder(t *testing.T) {
	for _, dialect := range []sqlgate.Dialect{sqlgate.Postgres, sqlgate.MySQL} {
		t.Run("fenced transaction/"+string(dialect), func(t *testing.T) {
			s, db := guarded(t, dialect)
			gate := s.gate(t, fencing.Rule{})
			pay := func(token fencing.Token, statement string) error {
				return gate.Do(t.Context(), "account/7", token, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), statement)
					return err
				})
			}
			require.NoError(t, pay(34, `UPDATE accounts SET balance = 80 WHERE id = 7`))
			require.NoError(t, pay(34, `UPDATE accounts SET balance = 70 WHERE id = 7`))
			require.Equal(t, 70, balance(t, db, 7))
			require.NoError(t, gate.Enter(t.Context(), "account/8", 5))
			require.Error(t, pay(35, `UPDATE accounts SET balance = 0 WHERE id = 8`),
				"the token of one row must not admit writes to another")
			require.ErrorIs(t, pay(33, `UPDATE accounts SET balance = 0 WHERE id = 7`), fencing.ErrStale)
			require.Equal(t, 70, balance(t, db, 7))
			require.NoError(t, pay(35, `DELETE FROM accounts WHERE id = 7`))
			require.NoError(t, pay(35, `INSERT INTO accounts (id, balance) VALUES (7, 1)`))
		})
	}
	for _, dialect := range []sqlgate.Dialect{sqlgate.MySQL, sqlgate.SQLite} {
		t.Run("token in the row/"+string(dialect), func(t *testing.T) {
			s, db := guarded(t, dialect)
			require.NoError(t, try(t, db, `UPDATE accounts SET balance = 80, fencing_token = 34 WHERE id = 7`))
			require.NoError(t, try(t, db, `UPDATE accounts SET balance = 70, fencing_token = 34 WHERE id = 7`))
			require.Equal(t, 70, balance(t, db, 7))
			mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), "account/7")
			require.NoError(t, err)
			require.Equal(t, fencing.Token(34), mark, "a write raises the mark")
			require.Error(t, try(t, db, `UPDATE accounts SET balance = 0, fencing_token = 33 WHERE id = 7`))
			require.Error(t, try(t, db, `UPDATE accounts SET balance = 0 WHERE id = 7`))
			require.Error(t, try(t, db, `UPDATE accounts SET balance = 0, fencing_token = 9007199254740990 WHERE id = 7`),
				"the bound applies here too")
			require.NoError(t, try(t, db, `INSERT INTO accounts (id, balance, fencing_token) VALUES (10, 1, 3)`))
			require.Error(t, try(t, db, `UPDATE accounts SET balance = 2 WHERE id = 10`))
			require.Equal(t, 70, balance(t, db, 7))
			require.Equal(t, 1, balance(t, db, 10))
		})
	}
}

func TestPostgresGuardChecksTheTransaction(t *testing.T) {
	_, db := guarded(t, sqlgate.Postgres)
	ctx := t.Context()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	run := func(statements ...string) error {
		for _, statement := range statements {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
				return err
			}
		}
		return nil
	}
	const fence35 = `SELECT leased_fence('account/7', 35)`
	const fence, write = `SELECT leased_fence('account/7', 34)`, `UPDATE accounts SET balance = balance - 1 WHERE id = 7`
	require.NoError(t, run(`BEGIN`, fence, write, `COMMIT`))
	require.ErrorContains(t, run(`BEGIN`, write, `COMMIT`), "no fencing token",
		"the fence of an earlier transaction must not count")
	require.NoError(t, run(`BEGIN`, `SAVEPOINT a`, fence, `RELEASE a`, write, `COMMIT`))
	require.ErrorContains(t, run(`BEGIN`, `SAVEPOINT a`, fence, `ROLLBACK TO a`, write, `COMMIT`), "no fencing token",
		"a fence that was rolled back must not count")
	require.ErrorContains(t, run(`BEGIN`, `SELECT leased_try('account/7', 33)`, write, `COMMIT`), "no fencing token",
		"a refused transaction must not write, although it holds the lock")
	require.NoError(t, run(`BEGIN`, `SELECT leased_try('account/7', 35)`, write, `COMMIT`))
	require.NoError(t, run(`BEGIN`, fence35, `SELECT leased_fence('account/8', 1)`, write,
		`UPDATE accounts SET balance = 1 WHERE id = 8`, `COMMIT`),
		"a transaction can be fenced for several resources")
	require.ErrorContains(t, run(`TRUNCATE accounts`), "cannot be truncated")
	require.Equal(t, 96, balance(t, db, 7))
}

// TestGuardAdmitsTheCallersTransaction fences inside a savepoint, where the row
// lock does not contain the id of the transaction.
func TestGuardAdmitsTheCallersTransaction(t *testing.T) {
	s, db := guarded(t, sqlgate.Postgres)
	gate := s.gate(t, fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), "account/7", 34))
	for _, token := range []fencing.Token{34, 35, 33} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SAVEPOINT a")
		require.NoError(t, err)
		admitted := gate.Admit(t.Context(), tx, "account/7", token)
		_, err = tx.ExecContext(t.Context(), "UPDATE accounts SET balance = 1 WHERE id = 7")
		if token == 33 {
			require.ErrorIs(t, admitted, fencing.ErrStale)
			require.ErrorContains(t, err, "no fencing token", "the guard must refuse code that ignores the refusal")
		} else {
			require.NoError(t, admitted)
			require.NoError(t, err)
		}
		require.NoError(t, tx.Rollback())
	}
}

func TestGuardRefusesInvalidNames(t *testing.T) {
	good := sqlgate.GuardedTable{Table: "accounts", Column: "id", Prefix: "account/"}
	for _, dialect := range dialects {
		_, err := sqlgate.Guard(dialect, good)
		require.NoError(t, err)
		for _, change := range []func(*sqlgate.GuardedTable){
			func(g *sqlgate.GuardedTable) { g.Table = "accounts; DROP TABLE x" },
			func(g *sqlgate.GuardedTable) { g.Table = "" },
			func(g *sqlgate.GuardedTable) { g.Column = "a b" },
			func(g *sqlgate.GuardedTable) { g.Prefix = "it's" },
			func(g *sqlgate.GuardedTable) { g.Prefix = "a\n" },
		} {
			bad := good
			change(&bad)
			_, err := sqlgate.Guard(dialect, bad)
			require.ErrorIs(t, err, sqlgate.ErrInvalidTable)
		}
	}
	_, err := sqlgate.Guard("oracle", good)
	require.ErrorIs(t, err, sqlgate.ErrUnknownDialect)
}

// Names are compared byte by byte. Neither collations nor character sets may bypass
// the fence.
func TestMySQLGuardComparesBytes(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	execute(t, s, `CREATE TABLE docs (pk int PRIMARY KEY,
		name varchar(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci, v int, fencing_token bigint)`,
		"INSERT INTO docs (pk, name, v) VALUES (1, 'a', 1), (2, 'é', 1)")
	text, err := sqlgate.Guard(sqlgate.MySQL, sqlgate.GuardedTable{Table: "docs", Column: "name", Prefix: "doc/",
		AllowUnfenced: true})
	require.NoError(t, err)
	execute(t, s, sqlgate.SplitMySQL(text)...)
	gate, db := s.gate(t, fencing.Rule{}), s.open(t)
	require.NoError(t, gate.Enter(t.Context(), "doc/A", 50))
	require.Error(t, try(t, db, `UPDATE docs SET name = 'A', v = 99, fencing_token = 3 WHERE pk = 1`),
		"the new name is fenced at 50")
	require.NoError(t, gate.Enter(t.Context(), "doc/é", 50))
	require.Error(t, try(t, db, `UPDATE docs SET v = 99 WHERE pk = 2`), "the row is fenced and has no token")
}

// A pool with one connection, which the transaction holds, must be sufficient.
func TestGateWithOneConnection(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			db := s.open(t)
			db.SetMaxOpenConns(1)
			gate, err := sqlgate.New(db, dialect, fencing.Rule{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			errs := make(chan error)
			for range 4 {
				go func() { errs <- gate.Do(ctx, "orders", 7, func(*sql.Tx) error { return nil }) }()
			}
			for range 4 {
				require.NoError(t, <-errs)
			}
		})
	}
}
