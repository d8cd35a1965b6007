package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// second returns a connection of a pool.
func second(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	conn, err := pool.Acquire(testserver.Context(t))
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	return conn.Conn()
}

// transaction begins a transaction, which ends with the test, and runs statements in it.
func transaction(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, statements ...string) pgx.Tx {
	t.Helper()
	ctx := testserver.Context(t)
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	run(t, tx.Conn(), statements...)
	return tx
}

// meanwhile starts a query with one result on a connection, waits until it waits for a lock of another
// transaction, and returns a function that receives the result.
func meanwhile[T any](t *testing.T, pool *pgxpool.Pool, sql string) func() T {
	t.Helper()
	ctx := testserver.Context(t)
	conn := second(t, pool)
	results, failed := make(chan T, 1), make(chan error, 1)
	go func() {
		var result T
		failed <- conn.QueryRow(ctx, sql).Scan(&result)
		results <- result
	}()
	testserver.Eventually(t, "the query waits", func() (waits bool) {
		require.Empty(t, failed, "the query does not wait: %s", sql)
		err := pool.QueryRow(ctx, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1",
			conn.PgConn().PID()).Scan(&waits)
		return err == nil && waits
	})
	return func() T {
		t.Helper()
		require.NoError(t, testserver.Receive(t, failed), sql)
		return testserver.Receive(t, results)
	}
}

// do runs statements, each in its own transaction.
func do(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := pool.Exec(testserver.Context(t), s)
		require.NoError(t, err, s)
	}
}

// value returns the result of a query.
func value[T any](t *testing.T, q querier, sql string) (result T) {
	t.Helper()
	require.NoError(t, q.QueryRow(testserver.Context(t), sql).Scan(&result), sql)
	return result
}

// pass waits for a time of the database's clock.
func pass(t *testing.T, pool *pgxpool.Pool, interval string) {
	t.Helper()
	end := value[time.Time](t, pool, "SELECT clock_timestamp() + interval '"+interval+"'")
	testserver.Eventually(t, interval+" pass", func() bool {
		return !value[time.Time](t, pool, "SELECT clock_timestamp()").Before(end)
	})
}

const (
	lockRow     = "SELECT FROM leased_locks WHERE resource = 'a' FOR UPDATE"
	acquireA    = "SELECT token FROM leased_acquire(ARRAY['a'], 'h', '1 min', 'an attempt for lock a')"
	releaseA    = "SELECT released FROM leased_release(ARRAY['a'], 'an attempt for lock a')"
	holdersA    = "SELECT count(*) FROM leased_inspect('a') WHERE token > 0"
	queueSet    = "SELECT place FROM leased_acquire(ARRAY['a', 'b'], 's', '1 min', 'an attempt for a set', NULL, '1 min')"
	queueA      = "SELECT place FROM leased_acquire(ARRAY['a'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')"
	unusedLockA = "INSERT INTO leased_locks (resource) VALUES ('a')"
)

// A release that finds the first acquire of a lock uncommitted waits for it, and ends it.
func TestReleaseWaitsForTheFirstAcquire(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	acquiring := transaction(t, pool, pgx.ReadCommitted, acquireA)
	released := meanwhile[bool](t, pool, releaseA)
	require.NoError(t, acquiring.Commit(testserver.Context(t)))
	require.True(t, released())
	require.Zero(t, value[int](t, pool, holdersA))

	// The rest of a set is released too, also if the lock that the release names goes to a waiter.
	const set = "SELECT leased_acquire(ARRAY['a', 'b', 'c'], 's', '1 min', 'an attempt for a set')"
	const queueB = "SELECT leased_acquire(ARRAY['b'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')"
	for _, statements := range [][]string{{set}, {set, queueB}} {
		pool = database(t, shared.Get(t).DSN)
		acquiring = transaction(t, pool, pgx.ReadCommitted, statements...)
		released = meanwhile[bool](t, pool, "SELECT released FROM leased_release(ARRAY['b'], 'an attempt for a set')")
		require.NoError(t, acquiring.Commit(testserver.Context(t)))
		require.True(t, released())
		require.Zero(t, value[int](t, pool, "SELECT count(*) FROM leased_list() WHERE holder = 's'"))
		require.Equal(t, len(statements)-1, value[int](t, pool, "SELECT count(*) FROM leased_list() WHERE holder = 'w'"))
	}
}

// A transaction whose snapshot is older than the release of an attempt does not grant the attempt.
func TestSnapshotsDoNotGrantEndedAttempts(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, before := range []string{"SELECT", unusedLockA} {
			pool := database(t, shared.Get(t).DSN)
			do(t, pool, before)
			tx := transaction(t, pool, level, "SELECT FROM leased_locks")
			do(t, pool, releaseA)
			_, err := tx.Exec(testserver.Context(t), acquireA)
			require.ErrorContains(t, err, "40001", "%s, %s", level, before)
		}
	}
}

// A call that waited for a transaction that did not change the lock has read the clock too early, and does so again.
func TestLeasesBeginAfterTheWait(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, pool, "another lock")) // the origin is known from now on
	do(t, pool, unusedLockA)
	blocker := transaction(t, pool, pgx.ReadCommitted, lockRow)
	acquire := meanwhile[time.Duration](t, pool, "SELECT remaining FROM leased_acquire(ARRAY['a'], 'h', '1 s', "+
		"'an attempt for lock a')")
	pass(t, pool, "1.5 s")
	end := value[time.Time](t, pool, "SELECT clock_timestamp()")
	require.NoError(t, blocker.Rollback(ctx))
	require.Positive(t, acquire())
	require.False(t, value[time.Time](t, pool, "SELECT granted FROM leased_locks WHERE resource = 'a'").Before(end))

	// The lease and its renewal end before the wait does.
	do(t, pool, "UPDATE leased_locks SET expires = clock_timestamp() + interval '6 s' WHERE resource = 'a'")
	blocker = transaction(t, pool, pgx.ReadCommitted, lockRow)
	renew := meanwhile[int](t, pool, "SELECT count(*) FROM leased_renew(ARRAY['a'], ARRAY['an attempt for lock a'], "+
		"'1 s')")
	testserver.Eventually(t, "the lease has expired", func() bool { return value[int](t, pool, holdersA) == 0 })
	require.NoError(t, blocker.Rollback(ctx))
	require.Zero(t, renew())
}

// raising returns a transaction that raises the tokens after a failover. Other grants wait for it.
func raising(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	moved(t, pool, "server = 'another'")
	do(t, pool, "INSERT INTO leased_raising SELECT leased_raised_for(system_identifier::text, leased_place()) "+
		"FROM pg_control_system()")
	return transaction(t, pool, pgx.ReadCommitted, "SELECT FROM leased_raising FOR UPDATE")
}

// The first grant after a failover may wait for another one that raises the tokens.
func TestLeaseBeginsAfterTheTokensAreRaised(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, pool, "another lock"))
	raise := raising(t, pool)
	acquire := meanwhile[time.Duration](t, pool, "SELECT remaining FROM leased_acquire(ARRAY['a'], 'h', '1 s', "+
		"'an attempt for lock a')")
	pass(t, pool, "1.5 s")
	end := value[time.Time](t, pool, "SELECT clock_timestamp()")
	require.NoError(t, raise.Rollback(testserver.Context(t)))
	require.Positive(t, acquire())
	require.False(t, value[time.Time](t, pool, "SELECT granted FROM leased_locks WHERE resource = 'a'").Before(end))
}

// A release that hands the lock over may wait for that grant, too.
func TestHandedOverLeaseBeginsAfterTheTokensAreRaised(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA, queueA)
	raise := raising(t, pool)
	release := meanwhile[bool](t, pool, releaseA)
	end := value[time.Time](t, pool, "SELECT clock_timestamp()")
	require.NoError(t, raise.Rollback(testserver.Context(t)))
	require.True(t, release())
	const lease = "FROM leased_locks WHERE resource = 'a' AND holder = 'w'"
	require.False(t, value[time.Time](t, pool, "SELECT granted "+lease).Before(end))
	require.Equal(t, time.Minute, value[time.Duration](t, pool, "SELECT expires - granted "+lease))
}

// A call that waited for a transaction sees the waiters that this transaction has queued.
func TestWaitersAreSeenAfterTheWait(t *testing.T) {
	t.Parallel()
	for _, call := range []string{
		"SELECT coalesce(token, 0) FROM leased_acquire(ARRAY['a'], 'h', '1 min', 'an attempt for lock a')",
		"SELECT coalesce(leased_hold('a'), 0)",
	} {
		pool := database(t, shared.Get(t).DSN)
		do(t, pool, unusedLockA)
		require.Positive(t, grant(t, pool, "b"))
		queueing := transaction(t, pool, pgx.ReadCommitted, queueSet)
		token := meanwhile[int64](t, pool, call)
		require.NoError(t, queueing.Commit(testserver.Context(t)))
		require.Zero(t, token(), call)
		require.Zero(t, value[int](t, pool, holdersA))
	}
}

// An acquire waits for a release of its own attempt, which has not held the lock. Its snapshot does not see that the
// attempt has ended, but the row of the lock says so.
func TestReleaseBeforeTheAcquireIsSeenAfterTheWait(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	for _, row := range []string{"SELECT", unusedLockA, "SELECT leased_hold('a')"} {
		do(t, pool, "TRUNCATE leased_locks, leased_ended", row)
		require.Positive(t, grant(t, pool, "b")) // the origin is known from now on
		releasing := transaction(t, pool, pgx.ReadCommitted, releaseA)
		failed := make(chan error, 1)
		acquiring := second(t, pool)
		go func() { _, err := acquiring.Exec(ctx, acquireA); failed <- err }()
		testserver.Eventually(t, "the acquire waits", func() bool {
			return value[bool](t, pool, fmt.Sprint("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
				"AND pid = ", acquiring.PgConn().PID(), ")"))
		})
		require.NoError(t, releasing.Commit(ctx))
		require.ErrorContains(t, testserver.Receive(t, failed), "LL001")
		require.Zero(t, value[int](t, pool, holdersA))
	}
}

// A release with a snapshot that is older than the first waiter fails, rather than wake nobody. Repeated, it wakes the
// waiter.
func TestOlderSnapshotsWakeWaiters(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		pool := database(t, shared.Get(t).DSN)
		do(t, pool, acquireA)
		tx := transaction(t, pool, level, "SELECT FROM leased_locks")
		do(t, pool, queueA)
		_, err := tx.Exec(ctx, releaseA)
		require.ErrorContains(t, err, "40001", level)
		require.NoError(t, tx.Rollback(ctx))
		repeated := transaction(t, pool, level, releaseA)
		require.NoError(t, repeated.Commit(ctx))
		require.Equal(t, "w", value[string](t, pool, "SELECT holder FROM leased_inspect('a')"))
	}
}

// A release with a snapshot that is older than a waiter, and that sees only one which has lost its place, does not let
// others take the lock before the waiter.
func TestOlderSnapshotsKeepTheQueue(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA, queueSet, "UPDATE leased_waiters SET expires = clock_timestamp()")
	tx := transaction(t, pool, pgx.RepeatableRead, "SELECT FROM leased_locks")
	do(t, pool, queueA)
	run(t, tx.Conn(), releaseA)
	require.NoError(t, tx.Commit(testserver.Context(t)))
	require.Zero(t, grant(t, pool, "a"))
	do(t, pool, queueA)
	require.Equal(t, 1, value[int](t, pool, holdersA))
}

// A transaction with a snapshot that is older than the place of a waiter ends the attempt, or grants it the lock. The
// attempt is not granted again in its place.
func TestOlderSnapshotsLeaveNoPlace(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	const (
		releaseW = "SELECT leased_release(ARRAY['a'], 'attempt of a waiter', false)"
		queueN   = "SELECT leased_acquire(ARRAY['a'], 'n', '1 min', 'attempt of the next', NULL, '1 min')"
		acquireN = "SELECT leased_acquire(ARRAY['a'], 'n', '1 min', 'attempt of the next')"
	)
	for _, next := range []string{"SELECT", queueN} {
		for _, granted := range []bool{false, true} {
			pool, left := database(t, shared.Get(t).DSN), "1 min"
			if granted {
				left = "8 s"
			}
			do(t, pool, acquireA, queueSet, "UPDATE leased_waiters SET expires = clock_timestamp()",
				"UPDATE leased_locks SET expires = clock_timestamp() + interval '"+left+"' WHERE resource = 'a'")
			tx := transaction(t, pool, pgx.RepeatableRead, "SELECT FROM leased_locks")
			do(t, pool, queueA)
			if granted {
				pass(t, pool, left)
				run(t, tx.Conn(), queueA)
				require.NoError(t, tx.Commit(ctx))
				do(t, pool, next, releaseW)
			} else {
				run(t, tx.Conn(), releaseW)
				require.NoError(t, tx.Commit(ctx))
				do(t, pool, next, releaseA)
			}
			require.Equal(t, next == queueN, value[int](t, pool, holdersA) == 1, "%v", granted)
			require.Zero(t, value[int](t, pool, "SELECT count(*) FROM leased_waiters WHERE resource = 'a'"))
			do(t, pool, acquireN)
			require.Equal(t, "n", value[string](t, pool, "SELECT holder FROM leased_inspect('a')"))
		}
	}
}

// An attempt with a snapshot that is older than its place in the queue fails, rather than get a second place.
func TestOlderSnapshotsQueueOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		pool := database(t, shared.Get(t).DSN)
		do(t, pool, acquireA, queueSet)
		tx := transaction(t, pool, level, "SELECT FROM leased_locks")
		do(t, pool, queueA)
		_, err := tx.Exec(testserver.Context(t), queueA)
		require.ErrorContains(t, err, "40001", level)
	}
}

// A refusal keeps nobody from the locks while its transaction is open.
func TestRefusalLocksNothing(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA)
	for _, names := range []string{"ARRAY['a']", "ARRAY['a', 'b']"} {
		tx := transaction(t, pool, pgx.ReadCommitted)
		require.Equal(t, "h", value[string](t, tx, "SELECT held_by FROM leased_acquire("+names+", 'other', '1 min', "+
			"gen_random_uuid()::text)"))
		renewing := second(t, pool)
		run(t, renewing, "SET lock_timeout = '1 s'")
		require.Equal(t, 1, value[int](t, renewing, "SELECT count(*) FROM leased_renew(ARRAY['a'], "+
			"ARRAY['an attempt for lock a'], '1 min')"))
	}
}

// A repeated attempt for a set reports the time of the lock that expires first, and has ended if it lost a lock.
func TestRepeatedSetIsComplete(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	const set = "FROM leased_acquire(ARRAY['a', 'b'], 's', '1 min', 'an attempt for a set')"
	token := value[int64](t, pool, "SELECT token "+set)
	do(t, pool, "UPDATE leased_locks SET expires = expires - interval '30 s' WHERE resource = 'b'")
	require.Equal(t, token, value[int64](t, pool, "SELECT token "+set))
	require.Less(t, value[time.Duration](t, pool, "SELECT remaining "+set), 31*time.Second)
	for _, other := range []bool{false, true} {
		do(t, pool, "UPDATE leased_locks SET expires = clock_timestamp() WHERE resource = 'b'")
		if other {
			require.Positive(t, grant(t, pool, "b"))
		}
		_, err := pool.Exec(testserver.Context(t), "SELECT "+set)
		require.ErrorContains(t, err, "LL001")
	}
}

// A release of one lock of a set ends the whole attempt, as a holder and as a waiter.
func TestReleaseEndsTheWholeSet(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	const set = "SELECT token FROM leased_acquire(ARRAY['a', 'b'], 's', '1 min', 'an attempt for a set')"
	require.Positive(t, value[int64](t, pool, set))
	require.True(t, value[bool](t, pool, "SELECT released FROM leased_release(ARRAY['b'], 'an attempt for a set')"))
	require.Positive(t, grant(t, pool, "a"))
	do(t, pool, "SELECT leased_acquire(ARRAY['a', 'c'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')",
		"SELECT leased_release(ARRAY['c'], 'attempt of a waiter')")
	require.Zero(t, value[int](t, pool, "SELECT count(*) FROM leased_waiters"))
}

// The release of a lease that has expired reports that it held nothing, and wakes the next waiter.
func TestReleaseOfAnExpiredLease(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA, "SELECT leased_acquire(ARRAY['a'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')",
		"UPDATE leased_locks SET expires = clock_timestamp()")
	require.False(t, value[bool](t, pool, releaseA))
	require.Equal(t, 1, value[int](t, pool, holdersA))
}

// A refusal of a set names the holder whose lease ends first.
func TestRefusalOfASet(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, "SELECT leased_acquire(ARRAY['a'], 'a long lease', '1 hour', 'an attempt for lock a')",
		"SELECT leased_acquire(ARRAY['b'], 'the short lease', '1 min', 'an attempt for lock b')")
	require.Equal(t, "the short lease true", value[string](t, pool,
		"SELECT held_by || ' ' || (remaining <= '1 min') FROM "+
			"leased_acquire(ARRAY['a', 'b'], 'h', '1 min', 'an attempt for a set')"))
}

// A set that has lost its place is queued for all its locks again.
func TestSetIsQueuedCompletely(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA)
	require.Positive(t, grant(t, pool, "b"))
	do(t, pool, queueSet, "UPDATE leased_waiters SET expires = clock_timestamp()", releaseA,
		"SELECT leased_acquire(ARRAY['a'], 'h', '1 min', 'another attempt for a')")
	require.Equal(t, int64(1), value[int64](t, pool, queueSet))
	require.Equal(t, []string{"a", "b"}, value[[]string](t, pool,
		"SELECT array_agg(resource ORDER BY resource) FROM leased_waiters WHERE expires > clock_timestamp()"))
}

// A release in an open transaction, which also removes what was remembered for an hour, does not delay other releases,
// and does not fail those with an older snapshot.
func TestReleasesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, "INSERT INTO leased_ended SELECT 'attempt number ' || n, session_user, now() - interval '2 hours' "+
		"FROM generate_series(1, 20) n")
	older := transaction(t, pool, pgx.RepeatableRead, "SELECT FROM leased_ended")
	open := transaction(t, pool, pgx.ReadCommitted, releaseA)
	other := second(t, pool)
	run(t, other, "SET lock_timeout = '1 s'", "SELECT leased_release(ARRAY['b'], 'an attempt for lock b')")
	require.NoError(t, open.Commit(ctx))
	run(t, older.Conn(), "SELECT leased_release(ARRAY['c'], 'an attempt for lock c')")
	require.NoError(t, older.Commit(ctx))
	require.Equal(t, 3, value[int](t, pool, "SELECT count(*) FROM leased_ended"))
}

// Arguments are bounded, since those of a waiter are used in the transaction of another role: its release.
func TestBounds(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA)
	const valid, long = "1 min", "1200000 months -35999999 days"
	acquire := func(ttl, attempt string, wait, channel *string) error {
		_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['a'], 'w', $1::text::interval, $2, NULL, "+
			"$3::text::interval, $4)", ttl, attempt, wait, channel)
		return err
	}
	text := func(s string) *string { return &s }
	const attempt = "attempt of a waiter"
	for _, span := range []string{long, "-12 months +361 days", "99 ms", "86401 s", "100 years", "-1 s"} {
		require.ErrorContains(t, acquire(span, attempt, nil, nil), "LL002", span)
		require.ErrorContains(t, acquire(valid, attempt, text(span), nil), "LL002", span)
		_, err := pool.Exec(ctx, "SELECT leased_renew(ARRAY['a'], ARRAY['an attempt for lock a'], $1::text::interval)", span)
		require.ErrorContains(t, err, "LL002", span)
	}
	do(t, pool, "INSERT INTO leased_locks (resource) VALUES ('free')")
	_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['free'], 'w', '"+long+"', '"+attempt+"')")
	require.ErrorContains(t, err, "LL002")
	for _, name := range []string{"", "two\nlines", strings.Repeat("n", 513)} {
		for _, call := range []string{"leased_acquire(ARRAY[$1], 'h', '1 min', 'an attempt of mine')",
			"leased_release(ARRAY[$1], 'an attempt of mine')", "leased_hold($1)"} {
			_, err := pool.Exec(ctx, "SELECT "+call, name)
			require.ErrorContains(t, err, "LL002", call)
		}
	}
	for _, channel := range []string{"", strings.Repeat("c", 64)} {
		require.ErrorContains(t, acquire(valid, attempt, text(valid), &channel), "LL002")
	}
	for _, invalid := range []string{"short", strings.Repeat("a", 129)} {
		require.ErrorContains(t, acquire(valid, invalid, nil, nil), "LL002")
		_, err := pool.Exec(ctx, "SELECT leased_release(ARRAY['a'], $1)", invalid)
		require.ErrorContains(t, err, "LL002")
	}
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("lock ", i)
	}
	for _, call := range []string{"leased_acquire($1, $2, '1 min', 'an attempt of mine', $3::jsonb, '1 min')",
		"leased_release($1, 'an attempt of mine' || left($2, 0) || left($3, 0))"} {
		_, err := pool.Exec(ctx, "SELECT "+call, many, "h", "{}")
		require.ErrorContains(t, err, "LL002", call)
	}
	large := `"` + strings.Repeat("m", 32767) + `"`
	_, err = pool.Exec(ctx, "SELECT leased_acquire(ARRAY['a'], $1, '1 min', $2, NULL, '1 min')",
		strings.Repeat("h", 257), attempt)
	require.ErrorContains(t, err, "LL002")
	_, err = pool.Exec(ctx, "SELECT leased_acquire(ARRAY['a'], 'h', '1 min', $2, $1::jsonb, '1 min')", large, attempt)
	require.ErrorContains(t, err, "LL002")
	_, err = pool.Exec(ctx, "SELECT leased_renew(ARRAY['a'], ARRAY['an attempt for lock a'], NULL, $1::jsonb)", large)
	require.ErrorContains(t, err, "LL002")
	require.NoError(t, acquire("1 day", attempt, text("1 day"), text("channel")))
	do(t, pool, releaseA)
	require.Equal(t, "24:00:00", value[string](t, pool, "SELECT ttl::text FROM leased_inspect('a')"))
}
