package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

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

// A write that fails after a statement that committed, or whose context ends then, has
// written something.
func TestFailedWriteAfterDDLIsUncertain(t *testing.T) {
	failure := errors.New("failed")
	for name, end := range map[string]func(tx *sql.Tx, cancel func()) error{
		"DDL":        func(tx *sql.Tx, _ func()) error { _, err := tx.Exec(`CREATE TABLE contents (x int)`); return err },
		"its caller": func(tx *sql.Tx, _ func()) error { _, err := tx.Exec(`COMMIT`); return errors.Join(err, failure) },
		"a context": func(tx *sql.Tx, cancel func()) error {
			_, err := tx.Exec(`COMMIT`)
			cancel()
			_, _ = tx.Exec(`DO SLEEP(0.1)`) // time for database/sql to notice
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorage(t, sqlgate.MySQL)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var failed error
			err := s.gate(t, fencing.Rule{}).Do(ctx, "orders", 7, func(tx *sql.Tx) error {
				require.NoError(t, s.put(ctx, tx, "orders", "committed"))
				failed = end(tx, cancel)
				return failed
			})
			if failed == nil {
				failed = context.Canceled
			}
			require.ErrorIs(t, err, failed)
			require.ErrorIs(t, err, sqlgate.ErrTransactionEnded)
			require.ErrorIs(t, err, storagegate.ErrUncertain)
		})
	}
}

// A connection with locked tables does not go back to the pool.
func TestFailedWriteKeepsNoTableLocked(t *testing.T) {
	for name, end := range map[string]func(tx *sql.Tx) error{
		"an error": func(*sql.Tx) error { return errors.New("failed") },
		"a panic":  func(*sql.Tx) error { panic("failed") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorage(t, sqlgate.MySQL)
			gate := s.gate(t, fencing.Rule{})
			func() {
				defer func() { _ = recover() }()
				_ = gate.Do(t.Context(), "orders", 7, func(tx *sql.Tx) error {
					_, err := tx.Exec(`LOCK TABLES contents WRITE`)
					require.NoError(t, err)
					return end(tx)
				})
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := s.open(t).ExecContext(ctx, `INSERT INTO contents VALUES ('other', 'value')`)
			require.NoError(t, err, "the table is not locked")
		})
	}
}

// A deadlock that the write returns is repeated, also together with other errors.
func TestReturnedDeadlockIsRepeated(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	deadlock := &mysql.MySQLError{Number: 1213}
	for _, returned := range []error{deadlock, fmt.Errorf("put: %w", deadlock),
		errors.Join(errors.New("close"), fmt.Errorf("put: %w", deadlock))} {
		runs := 0
		require.NoError(t, s.gate(t, fencing.Rule{}).Do(t.Context(), "orders", 7, func(tx *sql.Tx) error {
			if runs++; runs == 1 {
				_, err := tx.Exec(`ROLLBACK`) // as the server does
				require.NoError(t, err)
				return returned
			}
			return s.put(t.Context(), tx, "orders", "second")
		}))
		require.Equal(t, 2, runs)
	}
}

// A write that has committed a part is not repeated, although its last statement asks for that.
func TestWriteThatCommittedIsNotRepeated(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	runs := 0
	err := s.gate(t, fencing.Rule{}).Do(t.Context(), "orders", 7, func(tx *sql.Tx) error {
		runs++
		_, err := tx.Exec(`COMMIT`)
		return errors.Join(err, &mysql.MySQLError{Number: 1205})
	})
	require.ErrorIs(t, err, sqlgate.ErrTransactionEnded)
	require.Equal(t, 1, runs)
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

// A pool whose connections have no autocommit does not keep a snapshot with an old mark, nor a lock on the table.
func TestMarkWithoutAutocommit(t *testing.T) {
	s := newStorage(t, sqlgate.MySQL)
	s.dsn += "?autocommit=0"
	db := s.open(t)
	db.SetMaxOpenConns(1)
	gate, err := sqlgate.New(db, sqlgate.MySQL, fencing.Rule{})
	require.NoError(t, err)
	for token := range fencing.Token(3) {
		if token > 0 {
			require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", token))
		}
		mark, err := gate.Mark(t.Context(), "orders")
		require.NoError(t, err)
		require.Equal(t, token, mark)
	}
}
