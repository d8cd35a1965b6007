package sqlgate_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

func TestAdmitInTheCallersTransaction(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			db := s.open(t)
			gate, err := sqlgate.New(db, dialect, fencing.Rule{MaxJump: 100})
			require.NoError(t, err)
			get := s.get(db)
			try := func(token fencing.Token, value string, finish func(*sql.Tx) error) error {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				if err := gate.Admit(t.Context(), tx, "orders", token); err != nil {
					return err
				}
				require.NoError(t, s.put(t.Context(), tx, "orders", value))
				return finish(tx)
			}
			require.NoError(t, try(5, "rolled back", (*sql.Tx).Rollback))
			mark, err := gate.Mark(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, fencing.None, mark, "the mark is rolled back with the transaction")

			require.NoError(t, try(5, "five", (*sql.Tx).Commit))
			require.ErrorIs(t, try(4, "four", (*sql.Tx).Commit), fencing.ErrStale)
			require.ErrorIs(t, try(106, "absurd", (*sql.Tx).Commit), fencing.ErrJump)
			require.ErrorIs(t, try(fencing.None, "none", (*sql.Tx).Commit), fencing.ErrNoToken)
			value, err := get(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, "five", value)
			require.Equal(t, storagegate.Counts{Admitted: 2, Stale: 1, Tokenless: 1, JumpExceeded: 1}, gate.Counts())
		})
	}
}

// TestSerializableWriteIsRepeated has a serializable transaction wait for another
// writer. PostgreSQL then aborts it and asks to repeat it.
func TestSerializableWriteIsRepeated(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	db := s.open(t)
	gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{}, sqlgate.WithIsolation(sql.LevelSerializable))
	require.NoError(t, err)
	require.NoError(t, gate.Enter(t.Context(), "orders", 1))
	first, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, gate.Admit(t.Context(), first, "orders", 1))
	require.NoError(t, s.put(t.Context(), first, "orders", "one"))

	done := make(chan error, 1)
	seen := ""
	go func() {
		done <- gate.Do(t.Context(), "orders", 2, func(tx *sql.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT value FROM contents WHERE resource = 'orders'`).Scan(&seen)
		})
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, timeout, tick)
	require.NoError(t, first.Commit())
	require.NoError(t, <-done)
	require.Equal(t, "one", seen, "the newer transaction must see the commit of the older one")
}

// TestLostConnectionAtCommitIsUncertain makes the server close the connection
// during the commit, in which a deferred trigger waits for a lock.
func TestLostConnectionAtCommitIsUncertain(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	execute(t, s, `CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON contents DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION wait_at_commit()`)
	db, gate := s.open(t), s.gate(t, fencing.Rule{})
	blocker, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = blocker.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(42)`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		done <- gate.Do(t.Context(), "orders", 3, func(tx *sql.Tx) error { return s.put(t.Context(), tx, "orders", "maybe") })
	}()
	require.Eventually(t, func() bool {
		var killed bool
		err := db.QueryRowContext(t.Context(),
			`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).Scan(&killed)
		return err == nil && killed
	}, timeout, tick)
	require.ErrorIs(t, <-done, storagegate.ErrUncertain)
	require.Zero(t, gate.Counts(), "an unknown outcome is not a decision")
	require.NoError(t, blocker.Rollback())
}

// A transaction that has already read has a snapshot in which the mark of a second
// resource may be old. The fence must compare with the current mark.
func TestSecondResourceIsComparedWithTheCurrentMark(t *testing.T) {
	// A transaction of SQLite locks all resources.
	for _, dialect := range []sqlgate.Dialect{sqlgate.Postgres, sqlgate.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			s := newStorage(t, dialect)
			gate, newer := s.gate(t, fencing.Rule{}), s.gate(t, fencing.Rule{})
			require.NoError(t, gate.Enter(t.Context(), "invoices", 33))
			err := gate.Do(t.Context(), "orders", 33, func(tx *sql.Tx) error {
				var marks int
				require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM leased_marks`).Scan(&marks))
				require.NoError(t, newer.Do(t.Context(), "invoices", 34, func(tx *sql.Tx) error {
					return s.put(t.Context(), tx, "invoices", "new")
				}))
				if err := gate.Admit(t.Context(), tx, "invoices", 33); err != nil {
					return err
				}
				return s.put(t.Context(), tx, "invoices", "stale")
			})
			var stale *fencing.StaleError
			require.ErrorAs(t, err, &stale)
			require.Equal(t, fencing.StaleError{Resource: "invoices", Token: 33, Mark: 34}, *stale)
			value, err := s.get(s.open(t))(t.Context(), "invoices")
			require.NoError(t, err)
			require.Equal(t, "new", value)
		})
	}
}

// A gate without its schema says which command installs it.
func TestMissingSchemaError(t *testing.T) {
	for _, d := range dialects {
		t.Run(string(d), func(t *testing.T) {
			s := newStorage(t, d)
			execute(t, s, `DROP TABLE leased_marks`)
			err := s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 1)
			require.ErrorContains(t, err, "leased gate ddl --dialect "+string(d))
		})
	}
}

// A COMMIT that PostgreSQL answers with ROLLBACK has a known outcome.
func TestIgnoredStatementErrorIsNotUncertain(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	gate := s.gate(t, fencing.Rule{})
	err := gate.Do(t.Context(), "orders", 3, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `SELECT 1/0`)
		require.Error(t, err)
		return nil
	})
	require.Error(t, err)
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
	mark, err := gate.Mark(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, fencing.None, mark)
}
