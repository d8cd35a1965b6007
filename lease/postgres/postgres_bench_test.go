package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// durable starts a server that syncs every commit, with the functions in its schema public.
func durable(b *testing.B) *pgxpool.Pool {
	b.Helper()
	server, err := testserver.StartDurablePostgres()
	require.NoError(b, err)
	b.Cleanup(server.Stop)
	pool, err := pgxpool.New(b.Context(), server.DSN+"&pool_max_conns=32")
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	marks, err := sqlgate.DDL(sqlgate.Postgres)
	require.NoError(b, err)
	for _, script := range []string{postgres.DDL(), marks} {
		_, err = pool.Exec(b.Context(), script)
		require.NoError(b, err)
	}
	return pool
}

// compare runs two functions in turn, and reports the median time of the second one, and the
// median of its ratio to the first.
func compare(b *testing.B, first, second func()) {
	b.Helper()
	timed := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	var times, ratios []float64
	for b.Loop() {
		before, after := timed(first), timed(second)
		times, ratios = append(times, float64(after.Microseconds())), append(ratios, float64(after)/float64(before))
	}
	slices.Sort(times)
	slices.Sort(ratios)
	b.ReportMetric(times[len(times)/2], "us/op-p50")
	b.ReportMetric(ratios[len(ratios)/2], "ratio-p50")
}

// A lock, its fence and the write in one transaction, against the write alone. A lock and a mark are a row each:
// plain updates of two more rows show what that costs without any check.
func BenchmarkOneTransaction(b *testing.B) {
	pool := durable(b)
	ctx := b.Context()
	for _, table := range []string{"accounts", "locks", "marks"} {
		_, err := pool.Exec(ctx, fmt.Sprintf("CREATE TABLE %[1]s (id int PRIMARY KEY, n bigint) WITH (fillfactor = 50); "+
			"INSERT INTO %[1]s SELECT n, 0 FROM generate_series(0, 99) n", table))
		require.NoError(b, err)
	}
	update := func(batch *pgx.Batch, table string, id int) {
		batch.Queue("UPDATE "+table+" SET n = n + 1 WHERE id = $1", id)
	}
	n := 0
	transaction := func(before func(batch *pgx.Batch, id int)) func() {
		return func() {
			n++
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				batch := &pgx.Batch{}
				before(batch, n%100)
				update(batch, "accounts", n%100)
				return tx.SendBatch(ctx, batch).Close()
			})
			require.NoError(b, err)
		}
	}
	alone := transaction(func(*pgx.Batch, int) {})
	b.Run("rows", func(b *testing.B) {
		compare(b, alone, transaction(func(batch *pgx.Batch, id int) {
			update(batch, "locks", id)
			update(batch, "marks", id)
		}))
	})
	b.Run("lock", func(b *testing.B) {
		compare(b, alone, transaction(func(batch *pgx.Batch, id int) {
			batch.Queue("SELECT leased_fence($1, leased_hold($1))", fmt.Sprintf("account/%d", id))
		}))
	})
}

// pair acquires and releases a lock.
func pair(ctx context.Context, pool *pgxpool.Pool, name, attempt string) error {
	for _, statement := range []string{"SELECT leased_acquire(ARRAY[$1], 'worker', '30 s', $2)",
		"SELECT leased_release(ARRAY[$1], $2, false)"} {
		if _, err := pool.Exec(ctx, statement, name, attempt); err != nil {
			return err
		}
	}
	return nil
}

// An acquire and its release in a table of a million idle locks, against an empty table.
func BenchmarkIdleLocks(b *testing.B) {
	empty, full := durable(b), durable(b)
	ctx := b.Context()
	for _, statement := range []string{"INSERT INTO leased_locks (resource) SELECT 'idle/' || n FROM " +
		"generate_series(1, 1000000) n", "VACUUM ANALYZE leased_locks", "CHECKPOINT"} {
		_, err := full.Exec(ctx, statement)
		require.NoError(b, err)
	}
	n := 0
	in := func(pool *pgxpool.Pool) func() {
		return func() {
			n++
			require.NoError(b, pair(ctx, pool, fmt.Sprintf("idle/%d", n%100+1), fmt.Sprintf("attempt number %d", n)))
		}
	}
	compare(b, in(empty), in(full))
}

// The dead rows and the size of the table of locks after many pairs of 256 workers with own locks.
func BenchmarkDeadRows(b *testing.B) {
	pool := durable(b)
	ctx := b.Context()
	backend, err := postgres.New(ctx, pool, nil)
	require.NoError(b, err)
	defer backend.Close()
	session, err := backend.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(b, err)
	var next atomic.Uint64
	var workers sync.WaitGroup
	for worker := range 256 {
		workers.Go(func() {
			own := []fencing.Resource{fencing.Resource(fmt.Sprintf("own/%d", worker))}
			for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
				_, err := session.Acquire(ctx, engine.Request{Nonce: engine.Nonce(n), Resources: own})
				if err == nil {
					err = session.Release(ctx, engine.Held{Nonce: engine.Nonce(n), Resources: own})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	var dead, updates, hot, bytes float64
	_, err = pool.Exec(ctx, "SELECT pg_stat_clear_snapshot()")
	require.NoError(b, err)
	require.NoError(b, pool.QueryRow(ctx,
		"SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE "+
			"relname = 'leased_locks'").
		Scan(&dead, &updates, &hot, &bytes))
	b.ReportMetric(dead, "dead-rows")
	b.ReportMetric(100*hot/max(updates, 1), "%hot")
	b.ReportMetric(bytes/1024, "KiB")
}
