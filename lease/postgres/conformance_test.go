package postgres_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/postgres"
)

// shared is one server for all tests, each with a schema of its own.
var shared = testserver.Shared{Start: testserver.StartPostgres}

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Stop()
	os.Exit(code)
}

// database returns a pool whose search path is a new schema with the functions. Statements may run before their
// installation.
func database(t *testing.T, dsn string, before ...string) *pgxpool.Pool {
	t.Helper()
	ctx := testserver.Context(t)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	schema := "test_" + engine.NewSessionID().String()
	config.ConnConfig.RuntimeParams["search_path"] = schema
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	do(t, pool, append(before, postgres.DDL())...)
	return pool
}

func backend(t *testing.T, pool *pgxpool.Pool) *postgres.Backend {
	t.Helper()
	b, err := postgres.New(context.Background(), pool, nil)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestConformance(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		return leasetest.Subject{Backend: func() engine.Backend {
			return backend(t, pool)
		}, Mode: engine.Correctness, TTL: 20 * time.Second,
			FIFO: true, Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits}}
	}, leasetest.InParallel())
}
