package sqlgate_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// endTransaction makes a write with token 33 that ends its own transaction with
// end, has a newer holder write, and continues.
func endTransaction(t *testing.T, s storage, end func(tx *sql.Tx)) error {
	t.Helper()
	gate := s.gate(t, fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), "orders", 33))
	return gate.Do(t.Context(), "orders", 33, func(tx *sql.Tx) error {
		end(tx)
		newer := s.gate(t, fencing.Rule{})
		require.NoError(t, newer.Do(t.Context(), "orders", 34, func(tx *sql.Tx) error {
			return s.put(t.Context(), tx, "orders", "new")
		}), "the mark is not locked any more")
		return s.put(t.Context(), tx, "orders", "stale")
	})
}

func requireStaleWriteRolledBack(t *testing.T, s storage, err error) {
	t.Helper()
	require.ErrorIs(t, err, sqlgate.ErrTransactionEnded)
	require.ErrorIs(t, err, storagegate.ErrUncertain)
	value, err := s.get(s.open(t))(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, "new", value, "the stale write must not be applied")
}

func TestStaleWriteAfterDDLIsRolledBack(t *testing.T) {
	for _, statement := range []string{`CREATE TABLE IF NOT EXISTS other (x int)`,
		`LOCK TABLES contents WRITE, leased_marks WRITE; UNLOCK TABLES`,
		`COMMIT`, `ROLLBACK`} {
		t.Run(statement, func(t *testing.T) {
			s := newStorage(t, sqlgate.MySQL)
			s.dsn += "?multiStatements=true"
			requireStaleWriteRolledBack(t, s, endTransaction(t, s, func(tx *sql.Tx) {
				_, err := tx.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}))
		})
	}
}

// TestStaleWriteAfterADeadlockIsRolledBack makes the gated transaction the victim
// of a deadlock: the other transaction has changed many more rows.
func TestStaleWriteAfterADeadlockIsRolledBack(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	execute(t, s, `CREATE TABLE rocks (id int PRIMARY KEY, v int)`, `INSERT INTO rocks SELECT seq, 0 FROM seq_1_to_600`)
	db := s.open(t)
	requireStaleWriteRolledBack(t, s, endTransaction(t, s, func(tx *sql.Tx) {
		ctx := t.Context()
		_, err := tx.ExecContext(ctx, `UPDATE rocks SET v = 1 WHERE id = 1`)
		require.NoError(t, err)
		heavy, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = heavy.Rollback() }()
		_, err = heavy.ExecContext(ctx, `UPDATE rocks SET v = 2 WHERE id >= 2`)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := heavy.ExecContext(ctx, `UPDATE rocks SET v = 2 WHERE id = 1`)
			done <- err
		}()
		_, err = tx.ExecContext(ctx, `UPDATE rocks SET v = 1 WHERE id = 2`)
		var deadlock *mysql.MySQLError
		require.ErrorAs(t, err, &deadlock)
		require.EqualValues(t, 1213, deadlock.Number)
		require.NoError(t, <-done)
	}))
}

// TestConnectionIsReset uses a pool with one connection.
func TestConnectionIsReset(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	db := s.open(t)
	db.SetMaxOpenConns(1)
	gate, err := sqlgate.New(db, sqlgate.MySQL, fencing.Rule{})
	require.NoError(t, err)
	cancelled, cancel := context.WithCancel(t.Context())
	for name, do := range map[string]func() error{
		"written": func() error {
			return gate.Do(t.Context(), "orders", 5, func(tx *sql.Tx) error { return s.put(t.Context(), tx, "orders", "five") })
		},
		"failed": func() error {
			return gate.Do(t.Context(), "orders", 5, func(*sql.Tx) error { return sql.ErrNoRows })
		},
		"cancelled": func() error {
			return gate.Do(cancelled, "orders", 5, func(tx *sql.Tx) error {
				defer cancel()
				return s.put(t.Context(), tx, "orders", "cancelled")
			})
		},
	} {
		err := do()
		require.Equal(t, name == "written", err == nil, "%s: %v", name, err)
		var on bool
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT @@autocommit`).Scan(&on))
		require.True(t, on, name)
		value, err := s.get(db)(t.Context(), "orders")
		require.NoError(t, err)
		require.NotEqual(t, "cancelled", value)
	}
}
