package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/gooselock"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

const resource = fencing.Resource("migrations/shop")

var (
	database = testserver.Shared{Start: testserver.StartPostgres}
	service  = testserver.Shared{Start: testserver.StartService}
)

func TestMain(m *testing.M) {
	if os.Getenv("MIGRATOR") != "" {
		os.Exit(child())
	}
	code := m.Run()
	database.Stop()
	service.Stop()
	os.Exit(code)
}

// place is where a migrator runs: the database as it reaches it, and the service, or ""
// for the PostgreSQL engine.
type place struct{ dsn, service string }

// open returns the database and a client of the locks. Poolers allow no prepared
// statements.
func (p place) open(ctx context.Context) (*sql.DB, *lease.Client, error) {
	config, err := pgxpool.ParseConfig(p.dsn)
	if err != nil {
		return nil, nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config.ConnConfig)
	if p.service != "" {
		locks, err := client.Dial(ctx, []string{p.service})
		return db, locks, err
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	backend, err := postgres.New(ctx, pool, nil)
	if err != nil {
		return nil, nil, err
	}
	locks, err := lease.New(backend, lease.WithPolicies(engine.Policy{TTL: 20 * time.Second}),
		lease.WithOnClose(func(context.Context) error { backend.Close(); pool.Close(); return nil }))
	return db, locks, err
}

// migrator is a provider of goose and what it uses.
type migrator struct {
	*goose.Provider
	db     *sql.DB
	locks  *lease.Client
	locker *gooselock.Locker
}

func (p place) migrator(ctx context.Context, files fstest.MapFS, options ...goose.ProviderOption) (*migrator, error) {
	db, locks, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{})
	if err != nil {
		return nil, err
	}
	locker, err := gooselock.New(locks, gate, resource)
	if err != nil {
		return nil, err
	}
	locked, err := locker.Options("")
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files, append(locked, options...)...)
	return &migrator{provider, db, locks, locker}, err
}

func (p place) forTest(t *testing.T, files fstest.MapFS) *migrator {
	t.Helper()
	m, err := p.migrator(testserver.Context(t), files)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.locks.Close(context.Background()))
		require.NoError(t, m.db.Close())
	})
	return m
}

// child runs as a process of its own and is stopped in the middle of its migration. Its
// exit code is 3 if a gate refused it, and 4 for another error.
func child() int {
	ctx := context.Background()
	p := place{os.Getenv("DATABASE"), os.Getenv("SERVICE")}
	var m *migrator
	var err error
	if os.Getenv("MIGRATOR") == "transaction" {
		m, err = p.migrator(ctx, nil, goose.WithGoMigrations(goose.NewGoMigration(1,
			&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO steps VALUES ('paused')`); err != nil {
					return err
				}
				if table := os.Getenv("LOCKS"); table != "" {
					if _, err := tx.ExecContext(ctx, "LOCK TABLE "+table); err != nil {
						return err
					}
				}
				testserver.AwaitResume()
				return nil
			}}, nil)))
	} else {
		m, err = p.migrator(ctx, fstest.MapFS{"1_slow.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
			"INSERT INTO steps VALUES ('before');\nSELECT pg_advisory_lock(77);\nINSERT INTO steps VALUES ('paused');\n")}})
		go func() {
			for waiting := 0; waiting == 0; {
				_ = m.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_locks, pg_sleep(0.02)
					WHERE locktype = 'advisory' AND NOT granted
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting)
			}
			testserver.AwaitResume()
		}()
	}
	if err == nil {
		_, err = m.Up(ctx)
	}
	fmt.Println(err)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, fencing.ErrStale):
		return 3
	default:
		return 4
	}
}

// freshDatabase creates a database with the schema of the gates and of the locks, and a table steps.
func freshDatabase(t *testing.T) *url.URL {
	t.Helper()
	ctx := testserver.Context(t)
	server := database.Get(t)
	name := "test_" + engine.NewSessionID().String()
	admin, err := sql.Open("pgx", server.DSN)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.ExecContext(ctx, "CREATE DATABASE "+name)
	require.NoError(t, err)
	dsn, err := url.Parse(server.DSN)
	require.NoError(t, err)
	dsn.Path = name
	db, err := sql.Open("pgx", dsn.String())
	require.NoError(t, err)
	defer db.Close()
	gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, gate.Install(ctx))
	_, err = db.ExecContext(ctx, postgres.DDL())
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `CREATE TABLE steps (step text)`)
	require.NoError(t, err)
	return dsn
}
