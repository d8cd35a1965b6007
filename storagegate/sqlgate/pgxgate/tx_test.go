package pgxgate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// superseded returns a gate that has admitted the token 1 of "orders", and a function
// that returns its value. A newer token was admitted by another gate since.
func superseded(t *testing.T) (*pgxgate.Gate, func() string) {
	t.Helper()
	open := newSchema(t)
	pool := open(t)
	gate, newer := pgxgate.New(pool, fencing.Rule{}), pgxgate.New(open(t), fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), "orders", 1))
	require.NoError(t, newer.Do(t.Context(), "orders", 2, func(tx pgxgate.Tx) error {
		return put(t.Context(), tx, "orders", "newer")
	}))
	return gate, func() string {
		value, err := get(pool)(t.Context(), "orders")
		require.NoError(t, err)
		return value
	}
}

// A write of a holder whose token this gate has admitted before runs before the check.
// Whatever it does, nothing is written and Do returns the refusal.
func TestRefusalOfALaterWrite(t *testing.T) {
	other := errors.New("the write failed")
	ctx := context.Background()
	for name, write := range map[string]func(tx pgxgate.Tx) error{
		"exec": func(tx pgxgate.Tx) error { return put(ctx, tx, "orders", "stale") },
		"exec, refusal ignored": func(tx pgxgate.Tx) error {
			_ = put(ctx, tx, "orders", "stale")
			return put(ctx, tx, "orders", "stale again")
		},
		"exec, refusal ignored, no error": func(tx pgxgate.Tx) error {
			_ = put(ctx, tx, "orders", "stale")
			_ = put(ctx, tx, "orders", "stale again")
			return nil
		},
		"exec, refusal replaced": func(tx pgxgate.Tx) error {
			_ = put(ctx, tx, "orders", "stale")
			return other
		},
		"several statements in one exec": func(tx pgxgate.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE contents SET value = 'stale'; UPDATE contents SET value = 'stale'`)
			return err
		},
		"exec with an option": func(tx pgxgate.Tx) error {
			_, err := tx.Exec(ctx, putSQL, pgx.QueryExecModeSimpleProtocol, "orders", "stale")
			return err
		},
		"query": func(tx pgxgate.Tx) error {
			rows, _ := tx.Query(ctx, putSQL+" RETURNING value", "orders", "stale")
			rows.Close()
			return rows.Err()
		},
		"query row": func(tx pgxgate.Tx) error {
			return tx.QueryRow(ctx, putSQL+" RETURNING 1", "orders", "stale").Scan(nil)
		},
		"batch": func(tx pgxgate.Tx) error {
			var b pgx.Batch
			b.Queue(putSQL, "orders", "stale")
			return tx.SendBatch(ctx, &b).Close()
		},
		"copy": func(tx pgxgate.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"contents"}, []string{"resource", "value"},
				pgx.CopyFromRows([][]any{{"invoices", "stale"}}))
			return err
		},
		"no statement": func(pgxgate.Tx) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			gate, value := superseded(t)
			err := gate.Do(t.Context(), "orders", 1, write)
			var stale *fencing.StaleError
			require.ErrorAs(t, err, &stale)
			require.Equal(t, fencing.StaleError{Resource: "orders", Token: 1, Mark: 2}, *stale)
			require.Equal(t, "newer", value())
			require.Equal(t, storagegate.Counts{Admitted: 1, Stale: 1}, gate.Counts())
		})
	}
}

// A write that must not run before the mark is raised: the gate has not admitted the
// token before, so an older holder may still write.
func TestFirstWriteRunsAfterTheMarkIsRaised(t *testing.T) {
	open := newSchema(t)
	pool := open(t)
	gate, older := pgxgate.New(open(t), fencing.Rule{}), pgxgate.New(pool, fencing.Rule{})
	require.NoError(t, older.Enter(t.Context(), "orders", 1))
	entered := make(chan error, 1)
	err := gate.Do(t.Context(), "orders", 2, func(tx pgxgate.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			entered <- older.Do(ctx, "orders", 1, func(tx pgxgate.Tx) error { return put(ctx, tx, "orders", "old") })
		}()
		var waiting int
		require.Eventually(t, func() bool {
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting)
			return err == nil && (waiting > 0 || len(entered) > 0)
		}, timeout, tick)
		require.Empty(t, entered, "the older holder must wait for this transaction")
		return put(t.Context(), tx, "orders", "new")
	})
	require.NoError(t, err)
	require.Error(t, testserver.Receive(t, entered))
}

// A first statement that cannot be prepared is not sent, so no transaction begins. A
// later statement must not be executed outside of one.
func TestStatementThatCannotBePrepared(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), "orders", 1))
	err := gate.Do(t.Context(), "orders", 1, func(tx pgxgate.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE missing SET value = $1`, "x")
		require.Error(t, err)
		require.Error(t, put(t.Context(), tx, "orders", "outside of the transaction"))
		return nil
	})
	require.Error(t, err)
	value, err := get(pool)(t.Context(), "orders")
	require.NoError(t, err)
	require.Empty(t, value)
	require.Zero(t, gate.Counts().Stale)
}

// A guard may refuse a row of another resource. That is an error of the write and no
// refusal of the token.
func TestRefusalByAGuardIsAnErrorOfTheWrite(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	guard(t, pool)
	require.NoError(t, gate.Enter(t.Context(), "orders", 3))
	err := gate.Do(t.Context(), "orders", 3, func(tx pgxgate.Tx) error { return put(t.Context(), tx, "invoices", "x") })
	require.ErrorContains(t, err, "no fencing token")
	require.NotErrorIs(t, err, fencing.ErrStale)
	err = gate.Batch(t.Context(), "orders", 3, func(b *pgx.Batch) { b.Queue(putSQL, "invoices", "x") })
	require.ErrorContains(t, err, "no fencing token")
	require.NotErrorIs(t, err, fencing.ErrStale)
	require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts())
}

// A holder that is paused in the middle of its transaction keeps the mark locked until the server aborts it.
func TestPausedTransactionEnds(t *testing.T) {
	open := newSchema(t)
	pool := open(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	paused, err := pgx.Connect(t.Context(), pool.Config().ConnString())
	require.NoError(t, err)
	defer paused.Close(context.Background())
	tx, err := paused.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, gate.Admit(t.Context(), tx, "orders", 33))
	_, err = tx.Exec(t.Context(), putSQL, "orders", "of the paused holder")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '1s'")
	require.NoError(t, err)

	require.NoError(t, gate.Do(testserver.Context(t), "orders", 34, func(tx pgxgate.Tx) error {
		_, err := tx.Exec(t.Context(), putSQL, "orders", "of its successor")
		return err
	}))
	require.Error(t, tx.Commit(t.Context()))
	var value string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT value FROM contents").Scan(&value))
	require.Equal(t, "of its successor", value)
}
