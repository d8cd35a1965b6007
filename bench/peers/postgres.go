package peers

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/postgres"
)

// postgresKinds returns the ways in which programs with a database take locks: session-level advisory locks, a
// hand-written table of leases, and the engine lease/postgres. The server is not replicated. It syncs every
// commit to disk; advisory locks are in its memory only.
func postgresKinds() []Kind {
	return []Kind{{Name: "postgres-advisory", Start: postgresStarter(""), Open: openAdvisory, ClientPerWorker: true},
		{Name: "postgres-row", Start: postgresStarter(createTable), Open: openRows},
		{Name: "postgres-leased", Start: postgresStarter(postgres.DDL()), Open: openPostgresEngine}}
}

// postgresStarter returns a function that starts a server and runs a script. The endpoint is the DSN.
func postgresStarter(script string) starter {
	return func(ctx context.Context, _ string) (*Cluster, error) {
		s, err := testserver.StartDurablePostgres()
		if err != nil {
			return nil, err
		}
		c := &Cluster{Endpoints: []string{s.DSN}}
		c.add(&s.Process, s.Stop)
		conn, err := pgx.Connect(ctx, s.DSN)
		if err == nil {
			defer conn.Close(ctx)
			c.Version = "PostgreSQL " + conn.PgConn().ParameterStatus("server_version") + ", " +
				library("pgx", "github.com/jackc/pgx/v5")
			_, err = conn.Exec(ctx, script)
		}
		if err != nil {
			c.Stop()
			return nil, fmt.Errorf("prepare PostgreSQL: %w", err)
		}
		return c, nil
	}
}

// openPostgresEngine opens clients of the engine lease/postgres.
func openPostgresEngine(endpoints []string) load.Target {
	return func(ctx context.Context) (load.Client, error) {
		pool, err := openPool(ctx, endpoints[0])
		if err != nil {
			return nil, err
		}
		backend, err := postgres.New(ctx, pool, slog.New(slog.DiscardHandler))
		if err != nil {
			pool.Close()
			return nil, err
		}
		client, err := lease.New(backend)
		return &postgresClient{leaseClient{client, ""}, backend, pool}, err
	}
}

// postgresClient is a client with its connections.
type postgresClient struct {
	leaseClient
	backend *postgres.Backend
	pool    *pgxpool.Pool
}

// Close implements [load.Client].
func (c *postgresClient) Close(ctx context.Context) error {
	err := c.leaseClient.Close(ctx)
	c.backend.Close()
	c.pool.Close()
	return err
}
