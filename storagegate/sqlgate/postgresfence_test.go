package sqlgate_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// leased_fence and leased_try lock the row of the mark until the transaction ends, whether the token raises it or not.
func TestPostgresFenceLocksTheMark(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
	db := s.open(t)
	for _, function := range []string{"leased_fence", "leased_try"} {
		for _, token := range []int{9, 10} {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			var mark int
			call := fmt.Sprintf(`SELECT %s('orders', %d)`, function, token)
			require.NoError(t, tx.QueryRowContext(t.Context(), call).Scan(&mark))
			require.Equal(t, token, mark)
			const lock = `SELECT FROM leased_marks FOR NO KEY UPDATE NOWAIT`
			require.ErrorContains(t, try(t, db, lock), "could not obtain lock", call)
			require.NoError(t, tx.Rollback())
		}
	}
}

// The bound on the jump holds for a resource that has a mark, also if the caller gives none.
func TestPostgresFenceIsBoundedAboveAMark(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
	db := s.open(t)
	for _, call := range []string{`SELECT leased_fence('orders', 1099511627786)`,
		`SELECT leased_fence('orders', 20, 10)`} {
		require.ErrorContains(t, try(t, db, call), "above the mark", call)
	}
	requireMark(t, s, "orders", 9)
	require.NoError(t, try(t, db, `SELECT leased_fence('orders', 1099511627785)`))
}

// A snapshot may be older than the last write of an older holder, so a new token must be entered first.
func TestPostgresFenceInAnOldSnapshot(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
	db := s.open(t)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, function := range []string{"leased_fence", "leased_try"} {
			fence := func(resource string, token int) error {
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				require.NoError(t, err)
				defer func() { require.NoError(t, tx.Rollback()) }()
				_, err = tx.ExecContext(t.Context(), fmt.Sprintf(`SELECT %s('%s', %d)`, function, resource, token))
				return err
			}
			var answer *pgconn.PgError
			require.ErrorAs(t, fence("orders", 10), &answer)
			require.Equal(t, "LF006", answer.Code)
			require.NoError(t, fence("orders", 9))
			require.NoError(t, fence("invoices", 1), "the first token of a resource")
		}
	}
}

// Every admitted token is recorded for the guard of a table: the first one of a resource, a newer one and the same
// again.
func TestPostgresGuardKnowsEveryFence(t *testing.T) {
	_, db := guarded(t, sqlgate.Postgres)
	for _, token := range []int{3, 4, 4} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), fmt.Sprintf(`SELECT leased_fence('account/7', %d)`, token))
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), `UPDATE accounts SET balance = balance - 1 WHERE id = 7`)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	}
	require.Equal(t, 97, balance(t, db, 7))
}
