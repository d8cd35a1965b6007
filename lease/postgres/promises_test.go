package postgres_test

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// step is by how much tokens rise when the database may have forgotten grants.
const step = 1 << 32

// grant takes a lock for a minute and returns its token, 0 if it is held.
func grant(t *testing.T, q querier, resource string) (token int64) {
	t.Helper()
	require.NoError(t, q.QueryRow(testserver.Context(t),
		"SELECT coalesce(token, 0) FROM leased_acquire(ARRAY[$1], 'test', '1 min', gen_random_uuid()::text)",
		resource).Scan(&token))
	return token
}

// grantSet takes two locks for a minute and returns their token, 0 if one is held.
func grantSet(t *testing.T, q querier, resource string) (token int64) {
	t.Helper()
	require.NoError(t, q.QueryRow(testserver.Context(t),
		"SELECT coalesce(token, 0) FROM leased_acquire(ARRAY[$1, $1 || '/2'], 'test', '1 min', gen_random_uuid()::text)",
		resource).Scan(&token))
	return token
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// connect returns a connection to a database whose functions are in the schema public.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	ctx := testserver.Context(t)
	var conn *pgx.Conn
	testserver.Eventually(t, "the database accepts connections", func() bool {
		var err error
		conn, err = pgx.Connect(ctx, dsn)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := conn.Exec(testserver.Context(t), s)
		require.NoError(t, err, s)
	}
}

// used takes and breaks a lock, which is granted by a shorter way from then on.
func used(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run(t, conn, fmt.Sprintf("SELECT leased_break('used', %d)", grant(t, conn, "used")))
}

// behind starts a standby of a primary and stops its replication, and then grants locks that it misses. It returns the
// standby, a connection to it, and the last token that it missed.
func behind(t *testing.T, primary *testserver.Server, before *pgx.Conn) (*testserver.Server, *pgx.Conn, int64) {
	t.Helper()
	standby, err := testserver.StartStandby(primary)
	require.NoError(t, err)
	t.Cleanup(standby.Stop)
	after := connect(t, standby.DSN)
	run(t, after, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	testserver.Eventually(t, "replication has stopped", func() bool {
		return value[int](t, after, "SELECT count(*) FROM pg_stat_wal_receiver") == 0
	})
	run(t, before, "SELECT pg_create_restore_point('behind')")
	var missed int64
	for range 100 {
		missed = grant(t, before, "missed/"+engine.NewSessionID().String())
	}
	return standby, after, missed
}

// A standby that missed grants is promoted. Its tokens are above those that it missed.
func TestTokensGrowAfterPromotion(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t)
	before := connect(t, primary.DSN)
	run(t, before, postgres.DDL())
	first := grant(t, before, "a")
	used(t, before)
	_, after, missed := behind(t, primary, before)
	require.Greater(t, missed, first+99)
	primary.Kill()
	run(t, after, "SELECT pg_promote()")
	require.Greater(t, grant(t, after, "used"), missed+step/2)
	require.Zero(t, grant(t, after, "a"), "the lease is held")
	require.Greater(t, grant(t, after, "b"), missed+step/2)
	require.Less(t, grant(t, after, "c"), missed+2*step, "the step is taken once")
}

// A server is recovered to a point in time before grants that its log contains.
func TestTokensGrowAfterARecovery(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t)
	before := connect(t, primary.DSN)
	run(t, before, postgres.DDL())
	used(t, before)
	source := value[string](t, before, "SELECT format('host=%s port=%s user=postgres', host(inet_server_addr()), "+
		"inet_server_port())")
	recovered, copied, missed := behind(t, primary, before)
	run(t, copied, "ALTER SYSTEM SET primary_conninfo = '"+source+"'",
		"ALTER SYSTEM SET recovery_target_name = 'behind'", "ALTER SYSTEM SET recovery_target_action = 'promote'")
	recovered.Kill()
	testserver.Eventually(t, "the server starts", func() bool { return recovered.Start() == nil })
	after := connect(t, recovered.DSN)
	testserver.Eventually(t, "the server is recovered", func() bool {
		return !value[bool](t, after, "SELECT pg_is_in_recovery()")
	})
	require.Zero(t, value[int](t, after, "SELECT count(*) FROM leased_locks WHERE resource LIKE 'missed/%'"))
	require.Greater(t, grant(t, after, "used"), missed+step/2)
	require.Greater(t, grant(t, after, "b"), missed+step/2)
}

// A dump is loaded into another database after more grants.
func TestTokensGrowAfterADump(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	before := connect(t, server.DSN)
	run(t, before, postgres.DDL())
	used(t, before)
	dump, err := exec.CommandContext(testserver.Context(t), "pg_dump", server.DSN).Output()
	require.NoError(t, err)
	var last int64
	for range 100 {
		last = grant(t, before, engine.NewSessionID().String())
	}
	run(t, before, "CREATE DATABASE loaded")
	load := exec.CommandContext(testserver.Context(t), "psql", "-q", "-v", "ON_ERROR_STOP=1",
		"postgres://postgres@"+server.Addr+"/loaded?sslmode=disable")
	stdin, err := load.StdinPipe()
	require.NoError(t, err)
	go func() { _, _ = stdin.Write(dump); _ = stdin.Close() }()
	output, err := load.CombinedOutput()
	require.NoError(t, err, string(output))
	after := connect(t, "postgres://postgres@"+server.Addr+"/loaded?sslmode=disable")
	run(t, after, "SET search_path = public")
	require.Greater(t, grant(t, after, "used"), last+step/2)
	require.Greater(t, grant(t, after, "b"), last+step/2)
}

// An operator can raise the tokens, never lower them.
func TestRaise(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	first := grant(t, pool, "a")
	for _, floor := range []int64{first + 1000, 1} {
		_, err := pool.Exec(testserver.Context(t), "SELECT leased_raise($1)", floor)
		require.NoError(t, err)
		next := grant(t, pool, engine.NewSessionID().String())
		require.Greater(t, next, max(first, floor))
		first = next
	}
}

// The server is killed again and again while clients work. No token is granted twice, each grant of a lock has a larger
// one than the grants before, and the fenced counters count every write that succeeded.
func TestTokensSurviveKills(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	ctx := testserver.Context(t)
	setup := connect(t, server.DSN)
	marks, err := sqlgate.DDL(sqlgate.Postgres)
	require.NoError(t, err)
	run(t, setup, postgres.DDL(), marks, "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL)",
		"INSERT INTO counters SELECT i, 0 FROM generate_series(0, 3) i",
		"ALTER SYSTEM SET wal_writer_delay = '10 s'", "SELECT pg_reload_conf()")

	work, stop := context.WithCancel(ctx)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		quiet   atomic.Bool // nobody writes
		tokens  = map[fencing.Token]bool{}
		last    [4]fencing.Token
		written [4]int
		unknown [4]int
	)
	for worker := range 8 {
		pool, err := pgxpool.New(ctx, server.DSN)
		require.NoError(t, err)
		c, err := lease.New(backend(t, pool), lease.WithPolicies(engine.Policy{TTL: 10 * time.Second}))
		require.NoError(t, err)
		id := worker % 4
		resource := fencing.Resource([]string{"k/0", "k/1", "k/2", "k/3"}[id])
		wg.Go(func() {
			defer pool.Close()
			for work.Err() == nil {
				l, err := c.Acquire(work, resource)
				if err != nil {
					continue
				}
				mu.Lock()
				if tokens[l.Token()] || l.Token() <= last[id] {
					t.Errorf("token %d was granted after token %d", l.Token(), last[id])
				}
				tokens[l.Token()] = true
				last[id] = l.Token()
				mu.Unlock()
				if quiet.Load() {
					_ = l.Release(work)
					continue
				}
				result, err := pool.Exec(ctx, "WITH f AS (SELECT leased_fence($1, $2)) UPDATE counters SET n = n + 1 FROM f "+
					"WHERE id = $3", string(resource), int64(l.Token()), id)
				mu.Lock()
				switch {
				case err == nil && result.RowsAffected() == 1:
					written[id]++
				case err != nil:
					unknown[id]++
				}
				mu.Unlock()
				_ = l.Release(work)
			}
			_ = c.Close(ctx)
		})
	}
	granted := func() int { mu.Lock(); defer mu.Unlock(); return len(tokens) }
	for range 5 {
		for _, silence := range []bool{false, true} { // a write would take the grants before it to the disk
			quiet.Store(silence)
			target := granted() + 40
			testserver.Eventually(t, "grants go on", func() bool { return granted() >= target })
		}
		server.Kill()
		testserver.Eventually(t, "the server starts", func() bool { return server.Start() == nil })
	}
	stop()
	wg.Wait()
	check := connect(t, server.DSN)
	for id := range 4 {
		var n int
		require.NoError(t, check.QueryRow(ctx, "SELECT n FROM counters WHERE id = $1", id).Scan(&n))
		require.GreaterOrEqual(t, n, written[id])
		require.LessOrEqual(t, n, written[id]+unknown[id])
	}
}

// A client gets its token when the grant is on disk, also while no other transaction writes.
func TestGrantsAreOnDisk(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	ctx := testserver.Context(t)
	setup := connect(t, server.DSN)
	run(t, setup, postgres.DDL(), "ALTER SYSTEM SET wal_writer_delay = '10 s'", "SELECT pg_reload_conf()")
	pool, err := pgxpool.New(ctx, server.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := open(t, backend(t, pool), nil)
	last := fencing.None
	for nonce := range engine.Nonce(4) {
		var grant engine.Grant
		testserver.Eventually(t, "the lock is granted", func() bool {
			grant, err = s.Acquire(ctx, request(nonce+1, fencing.Resource(fmt.Sprint("k/", nonce))))
			return err == nil
		})
		require.Greater(t, grant.Token, last)
		last = grant.Token
		server.Kill()
		testserver.Eventually(t, "the server starts", func() bool { return server.Start() == nil })
	}
}

// A lock is taken and released in one transaction, at every isolation level. A lock and its fence share a transaction
// at READ COMMITTED; at the other levels only a first mark, and the fence says so.
func TestOneTransaction(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	marks, err := sqlgate.DDL(sqlgate.Postgres)
	require.NoError(t, err)
	do(t, pool, marks)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		resource := "iso/" + string(level)
		for round := range 2 {
			tx := transaction(t, pool, level)
			_, err := tx.Exec(ctx, "SELECT leased_fence($1, leased_hold($1))", resource)
			if round == 0 || level == pgx.ReadCommitted {
				require.NoError(t, err, level)
				require.NoError(t, tx.Commit(ctx))
			} else {
				require.ErrorContains(t, err, "LF006", level)
				require.NoError(t, tx.Rollback(ctx))
			}
		}
		tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		var token int64
		require.NoError(t, tx.QueryRow(ctx,
			"SELECT token FROM leased_acquire(ARRAY[$1], 'one', '1 min', 'an attempt of '||$1)", resource).Scan(&token))
		require.Positive(t, token)
		var released bool
		require.NoError(t, tx.QueryRow(ctx, "SELECT released FROM leased_release(ARRAY[$1], 'an attempt of '||$1)",
			resource).Scan(&released))
		require.True(t, released)
		require.NoError(t, tx.Commit(ctx))
		require.Greater(t, grant(t, pool, resource), token)
	}
}

// A release that notifies a waiter cannot be prepared: PostgreSQL prepares no transaction with a notification.
func TestPreparedReleaseNotifiesNobody(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA, "SELECT leased_acquire(ARRAY['a'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min', 'c')")
	tx := transaction(t, pool, pgx.ReadCommitted, releaseA)
	_, err := tx.Exec(ctx, "PREPARE TRANSACTION 'leased_"+engine.NewSessionID().String()+"'")
	require.ErrorContains(t, err, "NOTIFY")
	require.Equal(t, 1, value[int](t, pool, holdersA), "the lease is as before")
}

// A transaction at a level with a snapshot does not take a lock that was taken after it began.
func TestSnapshotsDoNotGrantTwice(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, existed := range []bool{false, true} {
			resource := "snapshot/" + engine.NewSessionID().String()
			if existed {
				_, err := pool.Exec(ctx, "INSERT INTO leased_locks (resource) VALUES ($1)", resource)
				require.NoError(t, err)
			}
			tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "SELECT count(*) FROM leased_locks") // takes the snapshot
			require.NoError(t, err)
			require.Positive(t, grant(t, pool, resource))
			var token *int64
			err = tx.QueryRow(ctx, "SELECT token FROM leased_acquire(ARRAY[$1], 'late', '1 min', gen_random_uuid()::text)",
				resource).Scan(&token)
			require.ErrorContains(t, err, "40001")
			require.NoError(t, tx.Rollback(ctx))
		}
	}
}

// Transactions at SERIALIZABLE that use different locks do not depend on each other, though PostgreSQL would read a
// small table as a whole.
func TestSerializableLocksAreIndependent(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, "INSERT INTO leased_locks (resource) SELECT 'lock ' || n FROM generate_series(1, 4) n",
		"ANALYZE leased_locks", "SELECT leased_hold('lock 1')") // the origin is known from now on
	for _, call := range []string{"SELECT leased_hold('lock %d')", "SELECT token FROM " +
		"leased_acquire(ARRAY['lock %d'], 'h', '1 min', gen_random_uuid()::text)"} {
		first, second := transaction(t, pool, pgx.Serializable), transaction(t, pool, pgx.Serializable)
		for i, tx := range []pgx.Tx{first, second} {
			require.Positive(t, value[int64](t, tx, fmt.Sprintf(call, i+1)))
		}
		for _, tx := range []pgx.Tx{first, second} {
			require.NoError(t, tx.Commit(testserver.Context(t)), call)
		}
	}
}

// A grant that is rolled back never was, and a prepared one is a grant when it is committed.
func TestSavepointsAndPreparedTransactions(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	run(t, conn.Conn(), "BEGIN", "SAVEPOINT s")
	undone := grant(t, conn, "a")
	run(t, conn.Conn(), "ROLLBACK TO s", "COMMIT")
	again := grant(t, pool, "a")
	require.Greater(t, again, undone, "the token of a grant that was rolled back is not used again")

	name := "leased_" + engine.NewSessionID().String()
	run(t, conn.Conn(), "BEGIN")
	prepared := grant(t, conn, "b")
	run(t, conn.Conn(), "PREPARE TRANSACTION '"+name+"'", "COMMIT PREPARED '"+name+"'")
	require.Positive(t, prepared)
	require.Zero(t, grant(t, pool, "b"))
}
