package pgxgate_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// Run with: go test -run '^$' -bench . ./storagegate/sqlgate/pgxgate

var durable = testserver.Shared{Start: testserver.StartDurablePostgres}

const (
	token    = fencing.Token(34)
	accounts = 256 // 16 for each of 16 writers
	paySQL   = `UPDATE accounts SET balance = balance + 1 WHERE id = $1`
)

// newest is the newest token of the resources whose every write has a newer token.
var newest atomic.Int64

// BenchmarkPostgres compares a transaction of one statement and a single statement
// with and without a gate, and a statement with a row lock, on a server that waits
// for the disk.
func BenchmarkPostgres(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), durable.Get(b).DSN+"&pool_max_conns=32")
	require.NoError(b, err)
	defer pool.Close()
	gate := pgxgate.New(pool, fencing.Rule{})
	require.NoError(b, gate.Install(b.Context()))
	_, err = pool.Exec(b.Context(), `DROP TABLE IF EXISTS accounts;
		CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
		INSERT INTO accounts SELECT n, 0 FROM generate_series(0, 255) n`)
	require.NoError(b, err)

	var names [accounts]fencing.Resource
	for i := range names {
		names[i] = fencing.Resource(fmt.Sprintf("account/%d", i))
		require.NoError(b, gate.Enter(b.Context(), names[i], token))
	}
	for _, writers := range []int{1, 16} {
		pick := func(writer, n int) int { return (n*writers + writer) % accounts }
		b.Run(fmt.Sprintf("transaction/writers=%d", writers), func(b *testing.B) {
			gatetest.Compare(b, writers, func(writer, n int) error {
				return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(b.Context(), paySQL, pick(writer, n))
					return err
				})
			}, func(writer, n int) error {
				id := pick(writer, n)
				return gate.Do(b.Context(), names[id], token, func(tx pgxgate.Tx) error {
					_, err := tx.Exec(b.Context(), paySQL, id)
					return err
				})
			})
		})
		// Each write has a newer token, which raises the mark.
		b.Run(fmt.Sprintf("first-write/writers=%d", writers), func(b *testing.B) {
			gatetest.Compare(b, writers, func(writer, n int) error {
				return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(b.Context(), paySQL, pick(writer, n))
					return err
				})
			}, func(writer, n int) error {
				id := pick(writer, n)
				return gate.Do(b.Context(), "new/"+names[id], fencing.Token(newest.Add(1)), func(tx pgxgate.Tx) error {
					_, err := tx.Exec(b.Context(), paySQL, id)
					return err
				})
			})
		})
		b.Run(fmt.Sprintf("statement/writers=%d", writers), func(b *testing.B) {
			gatetest.Compare(b, writers, func(writer, n int) error {
				_, err := pool.Exec(b.Context(), paySQL, pick(writer, n))
				return err
			}, func(writer, n int) error {
				id := pick(writer, n)
				return gate.Batch(b.Context(), names[id], token, func(batch *pgx.Batch) { batch.Queue(paySQL, id) })
			})
		})
		// A statement that only locks a row. No gate with its own statement can be
		// faster.
		b.Run(fmt.Sprintf("lock/writers=%d", writers), func(b *testing.B) {
			gatetest.Compare(b, writers, func(writer, n int) error {
				_, err := pool.Exec(b.Context(), paySQL, pick(writer, n))
				return err
			}, func(writer, n int) error {
				id := pick(writer, n)
				var batch pgx.Batch
				batch.Queue(`SELECT FROM leased_marks WHERE resource = $1 FOR NO KEY UPDATE`, string(names[id]))
				batch.Queue(paySQL, id)
				return pool.SendBatch(b.Context(), &batch).Close()
			})
		})
	}
}

// BenchmarkDo measures a later write of a holder alone, on a server that does not wait
// for the disk.
func BenchmarkDo(b *testing.B) {
	gate := warm(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := later(b, gate); err != nil {
			b.Fatal(err)
		}
	}
}

// warm returns a gate that has admitted a token of "orders", with prepared statements.
func warm(tb testing.TB) *pgxgate.Gate {
	tb.Helper()
	gate := pgxgate.New(newSchema(tb)(tb), fencing.Rule{})
	for range 8 { // PostgreSQL and pgx prepare statements
		require.NoError(tb, later(tb, gate))
	}
	return gate
}

// later is a write of the holder of "orders".
func later(tb testing.TB, gate *pgxgate.Gate) error {
	return gate.Do(tb.Context(), "orders", token, func(tx pgxgate.Tx) error {
		return put(tb.Context(), tx, "orders", "x")
	})
}

// TestDoAllocations bounds the allocations of a later write in the gate and pgx. Lower the
// bound after an improvement.
func TestDoAllocations(t *testing.T) {
	gate := warm(t)
	const most = 60 // 54 were measured
	got := testing.AllocsPerRun(200, func() {
		if later(t, gate) != nil {
			t.Fail()
		}
	})
	t.Logf("%v allocations", got)
	require.LessOrEqual(t, got, float64(most))
}
