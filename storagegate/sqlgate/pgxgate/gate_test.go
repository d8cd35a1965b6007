package pgxgate_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/sqlgate"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

var postgres = testserver.Shared{Start: testserver.StartPostgres}

func TestMain(m *testing.M) {
	if os.Getenv(envDSN) != "" {
		pausedChild() // does not return
	}
	_ = flag.Set("rapid.checks", "30") // the suite runs several times; the command line can override it
	code := m.Run()
	postgres.Stop()
	durable.Stop()
	os.Exit(code)
}

// timeout and tick are for require.Eventually.
const (
	timeout = 2 * time.Minute
	tick    = 5 * time.Millisecond
)

const putSQL = `INSERT INTO contents VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET value = excluded.value`

var made atomic.Int64

// newSchema creates a schema with the marks and the table of the suite. It returns
// a function that opens a pool on it.
func newSchema(t testing.TB) func(t testing.TB) *pgxpool.Pool {
	t.Helper()
	server := postgres.Get(t)
	name := fmt.Sprintf("case_%d", made.Add(1))
	admin, err := pgx.Connect(t.Context(), server.DSN)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "CREATE SCHEMA "+name)
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	open := func(t testing.TB) *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), server.DSN+"&search_path="+name)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	pool := open(t)
	_, err = pool.Exec(t.Context(), "CREATE TABLE contents (resource text PRIMARY KEY, value text NOT NULL)")
	require.NoError(t, err)
	require.NoError(t, pgxgate.New(pool, fencing.Rule{}).Install(t.Context()))
	return open
}

// newSuiteSchema returns a schema for a suite whose cases run one after the other. The
// function that it returns empties the schema, in spite of the triggers that keep marks.
// The pools stay open: new connections would cost more processor time than the cases.
func newSuiteSchema(t testing.TB) func(t testing.TB) (open func() *pgxpool.Pool) {
	t.Helper()
	open := newSchema(t)
	admin := open(t)
	var opened []*pgxpool.Pool
	return func(inner testing.TB) func() *pgxpool.Pool {
		_, err := admin.Exec(inner.Context(), `SET session_replication_role = replica;
			TRUNCATE contents, leased_marks, leased_resets; RESET session_replication_role`)
		require.NoError(inner, err)
		used := 0
		return func() *pgxpool.Pool {
			if used == len(opened) {
				opened = append(opened, open(t))
			}
			used++
			return opened[used-1]
		}
	}
}

// A gate without its schema says which command installs it.
func TestMissingSchemaError(t *testing.T) {
	pool := newSchema(t)(t)
	_, err := pool.Exec(t.Context(), `DROP TABLE leased_marks CASCADE; DROP FUNCTION leased_try, leased_fence CASCADE`)
	require.NoError(t, err)
	gate := pgxgate.New(pool, fencing.Rule{})
	require.ErrorContains(t, gate.Enter(t.Context(), "orders", 1), "leased gate ddl --dialect postgres")
	err = gate.Batch(t.Context(), "orders", 1, func(*pgx.Batch) {})
	require.ErrorContains(t, err, "leased gate ddl --dialect postgres")
}

func put(ctx context.Context, tx pgxgate.Tx, resource fencing.Resource, value string) error {
	_, err := tx.Exec(ctx, putSQL, string(resource), value)
	return err
}

func get(pool *pgxpool.Pool) func(ctx context.Context, resource fencing.Resource) (string, error) {
	return func(ctx context.Context, resource fencing.Resource) (value string, err error) {
		err = pool.QueryRow(ctx, `SELECT value FROM contents WHERE resource = $1`, string(resource)).Scan(&value)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return value, err
	}
}

func TestGate(t *testing.T) {
	empty := newSuiteSchema(t)
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		open := empty(t)
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			pool := open()
			gate := pgxgate.New(pool, rule)
			return subject{gatetest.Adapt(gate, put, get(pool)), gate, pool.Config().ConnString()}
		}
	})
}

// batched writes with Batch, which has no moment between check and commit.
type batched struct {
	*pgxgate.Gate
	pool *pgxpool.Pool
}

func (b batched) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	return b.Batch(ctx, resource, token, func(batch *pgx.Batch) { batch.Queue(putSQL, string(resource), value) })
}

func (b batched) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return get(b.pool)(ctx, resource)
}

func TestBatch(t *testing.T) {
	empty := newSuiteSchema(t)
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		open := empty(t)
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			pool := open()
			return batched{pgxgate.New(pool, rule), pool}
		}
	})
}

// TestBatchLocksTheMark blocks a batch after its check with a lock. A newer token
// must wait for the end of the batch.
func TestBatchLocksTheMark(t *testing.T) {
	open := newSchema(t)
	pool := open(t)
	gate, other := pgxgate.New(pool, fencing.Rule{}), pgxgate.New(open(t), fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), "orders", 1), "so that the batch only locks the mark")
	blocker, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = blocker.Rollback(context.Background()) }) // otherwise a failed test would not end
	_, err = blocker.Exec(t.Context(), `SELECT pg_advisory_xact_lock(42)`)
	require.NoError(t, err)
	batch, newer := make(chan error, 1), make(chan error, 1)
	requireWaiting := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool {
			var waiting int
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
			return err == nil && waiting == want || len(newer) > 0
		}, timeout, tick)
	}
	go func() {
		batch <- gate.Batch(t.Context(), "orders", 1, func(b *pgx.Batch) {
			b.Queue(`SELECT pg_advisory_xact_lock(42)`)
			b.Queue(putSQL, "orders", "old")
		})
	}()
	requireWaiting(1)
	go func() { newer <- other.Enter(t.Context(), "orders", 2) }()
	requireWaiting(2)
	require.Empty(t, newer, "the newer token must wait for the batch")
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, testserver.Receive(t, batch))
	require.NoError(t, testserver.Receive(t, newer))
}

func TestFailedStatementRollsBackTheBatch(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	err := gate.Batch(t.Context(), "orders", 3, func(b *pgx.Batch) {
		b.Queue(putSQL, "orders", "written")
		b.Queue(putSQL, "orders", nil) // not null
	})
	require.Error(t, err)
	require.NotErrorIs(t, err, storagegate.ErrUncertain, "the server refused the statement")
	value, err := get(pool)(t.Context(), "orders")
	require.NoError(t, err)
	require.Empty(t, value)
	mark, err := gate.Mark(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, fencing.None, mark)
	require.Zero(t, gate.Counts())
}

func TestCallbackErrorIsUncertain(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	err := gate.Batch(t.Context(), "orders", 3, func(b *pgx.Batch) {
		b.Queue(`SELECT 1`).QueryRow(func(pgx.Row) error { return errors.New("too late") })
	})
	require.ErrorIs(t, err, storagegate.ErrUncertain)
}

// TestLostConnectionAtCommitIsUncertain closes the connection during the commit, in
// which a deferred trigger waits for a lock.
func TestLostConnectionAtCommitIsUncertain(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	_, err := pool.Exec(t.Context(), `
		CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON contents DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION wait_at_commit()`)
	require.NoError(t, err)
	blocker, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = blocker.Rollback(context.Background()) }) // otherwise a failed test would not end
	_, err = blocker.Exec(t.Context(), `SELECT pg_advisory_xact_lock(42)`)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- gate.Do(ctx, "orders", 3, func(tx pgxgate.Tx) error { return put(ctx, tx, "orders", "maybe") })
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).Scan(&waiting)
		return err == nil && waiting == 1
	}, timeout, tick)
	cancel()
	err = <-done
	require.ErrorIs(t, err, storagegate.ErrUncertain)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, gate.Counts(), "an unknown outcome is not a decision")
	require.NoError(t, blocker.Rollback(t.Context()))
}

func TestIgnoredStatementErrorIsNotUncertain(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	err := gate.Do(t.Context(), "orders", 3, func(tx pgxgate.Tx) error {
		_ = put(t.Context(), tx, "orders", "x")
		_, _ = tx.Exec(t.Context(), "SELECT 1/0")
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
	require.NoError(t, gate.Enter(t.Context(), "orders", 1), "the mark was rolled back too")
}

func TestAdmitInTheCallersTransaction(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{MaxJump: 100}, pgxgate.WithIsolation(pgx.Serializable))
	try := func(token fencing.Token) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if err := gate.Admit(t.Context(), tx, "orders", token); err != nil {
				return err
			}
			return put(t.Context(), tx, "orders", token.String())
		})
	}
	require.NoError(t, try(5))
	require.ErrorIs(t, try(4), fencing.ErrStale)
	require.ErrorIs(t, try(106), fencing.ErrJump)
	require.ErrorIs(t, try(fencing.None), fencing.ErrNoToken)
	require.NoError(t, gate.Do(t.Context(), "orders", 6, func(tx pgxgate.Tx) error {
		var level string
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&level))
		require.Equal(t, "serializable", level)
		return nil
	}))
	require.Equal(t, storagegate.Counts{Admitted: 2, Stale: 1, Tokenless: 1, JumpExceeded: 1}, gate.Counts())
}

// guard makes the table of the suite refuse rows of resources that were not fenced.
func guard(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	text, err := sqlgate.Guard(sqlgate.Postgres, sqlgate.GuardedTable{Table: "contents", Column: "resource"})
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), text)
	require.NoError(t, err)
}

func TestGuardAdmitsTheHolder(t *testing.T) {
	pool := newSchema(t)(t)
	gate := pgxgate.New(pool, fencing.Rule{})
	guard(t, pool)
	for _, token := range []fencing.Token{3, 3, 3, 4, 4} { // raised, held, held, raised, held
		require.NoError(t, gate.Do(t.Context(), "orders", token, func(tx pgxgate.Tx) error {
			return put(t.Context(), tx, "orders", "x")
		}))
		require.NoError(t, gate.Batch(t.Context(), "orders", token, func(b *pgx.Batch) { b.Queue(putSQL, "orders", "y") }))
	}
	err := gate.Do(t.Context(), "invoices", 1, func(tx pgxgate.Tx) error { return put(t.Context(), tx, "orders", "z") })
	require.ErrorContains(t, err, "no fencing token", "the token was admitted for another resource")
	_, err = pool.Exec(t.Context(), putSQL, "orders", "z")
	require.ErrorContains(t, err, "no fencing token")
}

func TestVerify(t *testing.T) {
	var weak *storagegate.VerifyError
	require.ErrorAs(t, pgxgate.Verify(t.Context(), newSchema(t)(t)), &weak)
	require.Len(t, weak.Weaknesses, 2, "the server of the tests does not sync: fsync and full_page_writes are off")
}
