package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/gooselock"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

var three = fstest.MapFS{
	"1_accounts.sql": {Data: []byte("-- +goose Up\nCREATE TABLE accounts (id int);\n-- +goose Down\nDROP TABLE " +
		"accounts;\n")},
	"2_row.sql": {Data: []byte("-- +goose Up\nINSERT INTO accounts VALUES (1);\n-- +goose Down\nDELETE FROM " +
		"accounts;\n")},
	"3_index.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY ids ON " +
		"accounts (id);\n-- +goose Down\nDROP INDEX ids;\n")},
}

// everywhere runs a test on fresh databases: for both engines, and for each of the routes, which are
// "direct" or a pool mode of PgBouncer.
func everywhere(t *testing.T, routes []string, test func(t *testing.T, p place)) {
	t.Helper()
	for _, engine := range []string{"service", "postgres"} {
		for _, route := range routes {
			t.Run(engine+"/"+route, func(t *testing.T) {
				t.Parallel()
				dsn := freshDatabase(t)
				if route != "direct" {
					bouncer, err := testserver.StartPgBouncer(database.Get(t), route, pooled[route]...)
					require.NoError(t, err)
					t.Cleanup(bouncer.Stop)
					dsn.Host = bouncer.Addr
				}
				p := place{dsn: dsn.String()}
				if engine == "service" {
					p.service = service.Get(t).Addr
				}
				test(t, p)
			})
		}
	}
}

var allRoutes = []string{"direct", "session", "transaction"}

// pooled has the settings of PgBouncer that docs/INTEGRATIONS.md asks for, and enough connections to the server: each
// of six migrators has up to seven.
var pooled = map[string][]string{
	"session":     {"default_pool_size = 60"},
	"transaction": {"server_reset_query = RESET application_name", "server_reset_query_always = 1"},
}

// The suite of goose: of five concurrent migrators, one applies all migrations.
func TestProviderLocking(t *testing.T) {
	everywhere(t, allRoutes, func(t *testing.T, p place) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider { return p.forTest(t, three).Provider })
		m := p.forTest(t, three)
		undone, err := m.DownTo(testserver.Context(t), 0)
		require.NoError(t, err)
		require.Len(t, undone, 3)
	})
}

// The suite of goose: of five concurrent lockers, one gets the lock.
func TestConcurrentLocking(t *testing.T) {
	everywhere(t, []string{"direct"}, func(t *testing.T, p place) {
		locktesting.TestConcurrentLocking(t, p.forTest(t, three).db, func(t *testing.T) lock.Locker {
			return p.forTest(t, three).databaseLocker(t)
		}, 2*time.Second)
	})
}

// databaseLocker is a session locker with a session of its own.
type databaseLocker struct {
	lock.SessionLocker
	conn *sql.Conn
}

// databaseLocker returns a locker that has had the lock once: the time limit of the suite is for the lock, not for
// connections and plans.
func (m *migrator) databaseLocker(t *testing.T) *databaseLocker {
	t.Helper()
	ctx := testserver.Context(t)
	conn, err := m.db.Conn(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	l := &databaseLocker{m.locker, conn}
	require.NoError(t, l.Lock(ctx, m.db))
	require.NoError(t, l.Unlock(ctx, m.db))
	return l
}

func (l *databaseLocker) Lock(ctx context.Context, _ *sql.DB) error {
	return l.SessionLock(ctx, l.conn)
}

// Unlock gets an ended context from the suite. Providers pass one that does not end.
func (l *databaseLocker) Unlock(ctx context.Context, _ *sql.DB) error {
	return l.SessionUnlock(context.WithoutCancel(ctx), l.conn)
}

// A migrator is stopped in the middle of its transaction, and another one takes over whose role may
// not terminate the first one's session. The first one continues and cannot commit.
func TestPausedMigratorCannotCommit(t *testing.T) {
	everywhere(t, []string{"direct"}, func(t *testing.T, p place) {
		ctx := testserver.Context(t)
		m := p.forTest(t, three)
		role := fmt.Sprint("role_", time.Now().UnixNano())
		exec(t, m.db, "CREATE ROLE "+role+" LOGIN SUPERUSER")
		dsn, err := url.Parse(p.dsn)
		require.NoError(t, err)
		dsn.User = url.User(role)
		resume := testserver.PauseChild(t, "MIGRATOR=transaction", "DATABASE="+dsn.String(), "SERVICE="+p.service)
		m.breakLease(t)
		applied, err := m.Up(ctx)
		require.NoError(t, err)
		require.Len(t, applied, 3)
		output, code := resume()
		require.Equal(t, 3, code, output)
		require.Empty(t, steps(t, m.db))
	})
}

// The next migrator has nothing to apply, and has not recorded a version. The paused one cannot
// commit nevertheless.
func TestTakeoverWithoutMigrations(t *testing.T) {
	everywhere(t, []string{"direct"}, func(t *testing.T, p place) {
		m := p.forTest(t, three)
		role := fmt.Sprint("idle_", time.Now().UnixNano())
		exec(t, m.db, "CREATE ROLE "+role+" LOGIN SUPERUSER")
		dsn, err := url.Parse(p.dsn)
		require.NoError(t, err)
		dsn.User = url.User(role)
		resume := testserver.PauseChild(t, "MIGRATOR=transaction", "DATABASE="+dsn.String(), "SERVICE="+p.service)
		m.breakLease(t)
		conn, err := m.db.Conn(testserver.Context(t))
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, m.locker.SessionLock(testserver.Context(t), conn))
		require.NoError(t, m.locker.SessionUnlock(testserver.Context(t), conn))
		output, code := resume()
		require.Equal(t, 3, code, output)
		require.Empty(t, steps(t, m.db))
	})
}

// A migrator is stopped while its transaction has locked a table that the next migrator needs. The
// next one does not wait for it.
func TestTakeoverDoesNotWaitForAPausedTransaction(t *testing.T) {
	everywhere(t, allRoutes, func(t *testing.T, p place) {
		ctx := testserver.Context(t)
		m := p.forTest(t, fstest.MapFS{"1_steps.sql": {Data: []byte("-- +goose Up\nALTER TABLE steps ADD COLUMN note " +
			"text;\n")}})
		resume := testserver.PauseChild(t, "MIGRATOR=transaction", "LOCKS=steps", "DATABASE="+p.dsn, "SERVICE="+p.service)
		m.breakLease(t)
		applied, err := m.Up(ctx)
		require.NoError(t, err)
		require.Len(t, applied, 1)
		output, code := resume()
		require.NotZero(t, code, output)
		require.Empty(t, steps(t, m.db))
	})
}

// A migrator without a transaction is stopped between two statements. When another one takes over,
// the session ends, and with it the second statement.
func TestTakeoverEndsThePausedSession(t *testing.T) {
	everywhere(t, []string{"direct", "session"}, func(t *testing.T, p place) {
		ctx := testserver.Context(t)
		m := p.forTest(t, three)
		between, err := m.db.Conn(ctx)
		require.NoError(t, err)
		defer between.Close()
		_, err = between.ExecContext(ctx, `SELECT pg_advisory_lock(77)`)
		require.NoError(t, err)
		resume := testserver.PauseChild(t, "MIGRATOR=statements", "DATABASE="+p.dsn, "SERVICE="+p.service)
		m.breakLease(t)
		limited, cancel := context.WithTimeout(ctx, 90*time.Second)
		defer cancel()
		applied, err := m.Up(limited)
		require.NoError(t, err, "the paused session still has its locks")
		require.Len(t, applied, 3)
		_, err = between.ExecContext(ctx, `SELECT pg_advisory_unlock(77)`)
		require.NoError(t, err)
		output, code := resume()
		require.Equal(t, 4, code, output)
		require.Equal(t, []string{"before"}, steps(t, m.db))
	})
}

// The Store refuses to record a version without the Locker.
func TestStoreNeedsTheLocker(t *testing.T) {
	dsn := freshDatabase(t)
	m := place{dsn: dsn.String()}.forTest(t, three)
	store, err := m.locker.Store("")
	require.NoError(t, err)
	p, err := goose.NewProvider(goose.DialectCustom, m.db, three, goose.WithStore(store))
	require.NoError(t, err)
	_, err = p.Up(testserver.Context(t))
	require.ErrorIs(t, err, gooselock.ErrNotLocked)
	_, err = m.Up(testserver.Context(t))
	require.NoError(t, err)
	var name string
	require.NoError(t, m.db.QueryRow(`SELECT current_setting('application_name')`).Scan(&name))
	require.Empty(t, name, "the session has its former name")
}

func TestNewValidates(t *testing.T) {
	_, err := gooselock.New(nil, nil, resource)
	require.ErrorContains(t, err, "nil")
	m := place{dsn: freshDatabase(t).String()}.forTest(t, three)
	gate, err := sqlgate.New(m.db, sqlgate.Postgres, fencing.Rule{})
	require.NoError(t, err)
	_, err = gooselock.New(m.locks, gate, "")
	require.ErrorIs(t, err, fencing.ErrInvalidResource)
}

// breakLease ends the lease of the holder, as its expiry would.
func (m *migrator) breakLease(t *testing.T) {
	t.Helper()
	ctx := testserver.Context(t)
	status, err := m.locks.Inspect(ctx, resource)
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	require.NoError(t, m.locks.Break(ctx, resource, status.Holders[0].Token))
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(testserver.Context(t), statement)
	require.NoError(t, err)
}

func steps(t *testing.T, db *sql.DB) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(testserver.Context(t), `SELECT step FROM steps`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var step string
		require.NoError(t, rows.Scan(&step))
		steps = append(steps, step)
	}
	require.NoError(t, rows.Err())
	return steps
}
