package postgres_test

import (
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/logtest"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// warning is logged when waiters are not notified.
const warning = "waiters ask the database again and again, because notifications do not arrive; " +
	"give them a connection that is not pooled by transaction"

// A waiter behind PgBouncer is granted the lock in every pool mode: notified in session mode,
// by asking again in the others.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	run(t, connect(t, server.DSN), postgres.DDL())
	for _, mode := range []string{"session", "transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ctx := testserver.Context(t)
			bouncer, err := testserver.StartPgBouncer(server, mode)
			require.NoError(t, err)
			t.Cleanup(bouncer.Stop)
			config, err := pgxpool.ParseConfig(bouncer.DSN)
			require.NoError(t, err)
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // no prepared statements
			log := logtest.New(slog.LevelWarn)
			var leases *postgres.Backend // of the newest client
			client := func() *lease.Client {
				pool, err := pgxpool.NewWithConfig(ctx, config)
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				b, err := postgres.New(ctx, pool, log.Logger())
				require.NoError(t, err)
				t.Cleanup(b.Close)
				leases = b
				c, err := lease.New(b, lease.WithPolicies(engine.Policy{TTL: 20 * time.Second}))
				require.NoError(t, err)
				return c
			}
			resource := fencing.Resource("bounced/" + mode)
			held, err := client().Acquire(ctx, resource)
			require.NoError(t, err)
			granted := make(chan *lease.Lease)
			waiter := client()
			go func() {
				l, err := waiter.Acquire(ctx, resource)
				require.NoError(t, err)
				granted <- l
			}()
			testserver.Eventually(t, "the waiter is queued", func() bool {
				status, err := waiter.Inspect(ctx, resource)
				return err == nil && len(status.Waiters) == 1
			})
			if mode != "session" {
				testserver.Eventually(t, "a warning", func() bool { return log.Count(warning) > 0 })
			}
			require.NoError(t, held.Release(ctx))
			l := testserver.Receive(t, granted)
			require.True(t, l.Token().Newer(held.Token()))
			require.NoError(t, l.SetMetadata(ctx, map[string]string{"done": "1 %"}))
			require.NoError(t, l.Extend(ctx, time.Minute))
			_, err = leases.Renew(ctx, resource, l.Token(), 0, map[string]string{"done": "2 %"})
			require.NoError(t, err)
			status, err := waiter.Inspect(ctx, resource)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"done": "2 %"}, status.Holders[0].Metadata)
			require.NoError(t, l.Release(ctx))
			if mode == "transaction" {
				require.Zero(t, listening(t, bouncer.DSN), "other clients would get the notifications")
			}
		})
	}
}

// The connection between PgBouncer and the server ends during a call. Its outcome is uncertain.
func TestPgBouncerLosesTheServer(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	server := testserver.Postgres(t)
	direct := connect(t, server.DSN)
	run(t, direct, postgres.DDL())
	bouncer, err := testserver.StartPgBouncer(server, "transaction")
	require.NoError(t, err)
	t.Cleanup(bouncer.Stop)
	pool, err := pgxpool.New(ctx, bouncer.DSN+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	defer pool.Close()
	b := backend(t, pool)
	for _, resources := range [][]fencing.Resource{{"busy"}, {"busy", "other"}} {
		testserver.Eventually(t, "a transaction holds the lock", func() bool { // the server ends all connections below
			direct = connect(t, server.DSN)
			_, err := direct.Exec(ctx, "BEGIN; SELECT leased_hold('busy')")
			return err == nil
		})
		failed := make(chan error)
		go func() {
			_, err := open(t, b, nil).Acquire(ctx, engine.Request{Nonce: 1, Resources: resources})
			failed <- err
		}()
		var pid int
		testserver.Eventually(t, "the acquire waits", func() bool {
			return direct.QueryRow(ctx, "SELECT pid FROM pg_locks WHERE NOT granted").Scan(&pid) == nil
		})
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		err := testserver.Receive(t, failed)
		require.ErrorIs(t, err, engine.ErrUncertain)
		require.NotErrorIs(t, err, engine.ErrUnavailable)
		testserver.Eventually(t, "the server ends all connections", func() bool { return direct.Ping(ctx) != nil })
	}
}

// listening returns the number of channels that the servers of a pooler listen to.
func listening(t *testing.T, dsn string) (channels int) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn+"&default_query_exec_mode=exec&pool_max_conns=10")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for range 10 { // all servers of the pooler, by transactions that are open together
		var n int
		tx := transaction(t, pool, pgx.ReadCommitted)
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_listening_channels()").Scan(&n))
		channels += n
	}
	return channels
}
