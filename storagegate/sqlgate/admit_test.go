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
			attempt := func(token fencing.Token, value string, finish func(*sql.Tx) error) error {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				if err := gate.Admit(t.Context(), tx, "door", token); err != nil {
					return err
				}
				require.NoError(t, s.put(t.Context(), tx, "door", value))
				return finish(tx)
			}
			require.NoError(t, attempt(5, "rolled back", (*sql.Tx).Rollback))
			mark, err := gate.Mark(t.Context(), "door")
			require.NoError(t, err)
			require.Equal(t, fencing.None, mark, "the mark goes with the caller's transaction")

			require.NoError(t, attempt(5, "five", (*sql.Tx).Commit))
			require.ErrorIs(t, attempt(4, "four", (*sql.Tx).Commit), fencing.ErrStale)
			require.ErrorIs(t, attempt(106, "absurd", (*sql.Tx).Commit), fencing.ErrJump)
			require.ErrorIs(t, attempt(fencing.None, "none", (*sql.Tx).Commit), fencing.ErrNoToken)
			value, err := get(t.Context(), "door")
			require.NoError(t, err)
			require.Equal(t, "five", value)
			require.Equal(t, storagegate.Counts{Admitted: 2, Stale: 1, Tokenless: 1, JumpExceeded: 1}, gate.Counts())
		})
	}
}

// TestSerializableWritersAreRunAgain has a writer wait for another at a level
// where PostgreSQL then refuses it, and asks for it to be run again.
func TestSerializableWritersAreRunAgain(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	db := s.open(t)
	gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{}, sqlgate.WithIsolation(sql.LevelSerializable))
	require.NoError(t, err)
	require.NoError(t, gate.Enter(t.Context(), "door", 1))
	first, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, gate.Admit(t.Context(), first, "door", 1))
	require.NoError(t, s.put(t.Context(), first, "door", "one"))

	done := make(chan error, 1)
	seen := ""
	go func() {
		done <- gate.Do(t.Context(), "door", 2, func(tx *sql.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT value FROM contents WHERE resource = 'door'`).Scan(&seen)
		})
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, gracious, tick)
	require.NoError(t, first.Commit())
	require.NoError(t, <-done)
	require.Equal(t, "one", seen, "the snapshot of the newer writer must be from after the older one's commit")
}

// TestALostConnectionAtCommitIsUncertain has the server close the connection
// while it works on the commit: a deferred trigger waits there for a lock.
func TestALostConnectionAtCommitIsUncertain(t *testing.T) {
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
		done <- gate.Do(t.Context(), "door", 3, func(tx *sql.Tx) error { return s.put(t.Context(), tx, "door", "maybe") })
	}()
	require.Eventually(t, func() bool {
		var killed bool
		err := db.QueryRowContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).Scan(&killed)
		return err == nil && killed
	}, gracious, tick)
	require.ErrorIs(t, <-done, storagegate.ErrUncertain)
	require.Zero(t, gate.Counts(), "an unknown outcome is no decision")
	require.NoError(t, blocker.Rollback())
}

func TestErrorsSayWhatToDo(t *testing.T) {
	s := newStorage(t, sqlgate.SQLite)
	execute(t, s, `DROP TABLE leased_marks`)
	err := s.gate(t, fencing.Rule{}).Enter(t.Context(), "door", 1)
	require.ErrorContains(t, err, "was Install called?")
}

// A COMMIT that PostgreSQL answers with ROLLBACK has a known outcome.
func TestASwallowedErrorIsACertainFailure(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	gate := s.gate(t, fencing.Rule{})
	err := gate.Do(t.Context(), "door", 3, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `SELECT 1/0`)
		require.Error(t, err)
		return nil
	})
	require.Error(t, err)
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
	mark, err := gate.Mark(t.Context(), "door")
	require.NoError(t, err)
	require.Equal(t, fencing.None, mark)
}
