package peers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

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
	advisory := postgresKind("postgres-advisory", openAdvisory, "")
	advisory.ClientPerWorker = true
	return []Kind{advisory, postgresKind("postgres-row", openRows, createTable), postgresKind("postgres-leased",
		openPostgresEngine, postgres.DDL())}
}

// postgresKind returns a way to use a server that has run a script.
func postgresKind(name string, open func(dsn string) load.Target, script string) Kind {
	return Kind{
		Name:   name,
		Attach: func(dsn string) (load.Target, error) { return open(dsn), nil },
		Start: func(ctx context.Context, _ string) (Peer, error) {
			s, err := testserver.StartDurablePostgres()
			if err != nil {
				return nil, err
			}
			if err := runScript(ctx, s.DSN, script); err != nil {
				s.Stop()
				return nil, fmt.Errorf("prepare PostgreSQL: %w", err)
			}
			return &postgresServer{s, open(s.DSN)}, nil
		},
	}
}

// postgresServer is a running server.
type postgresServer struct {
	*testserver.Server
	open load.Target
}

var _ Peer = (*postgresServer)(nil)

func runScript(ctx context.Context, dsn, script string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, script)
	return err
}

// Open implements [Peer].
func (s *postgresServer) Open(ctx context.Context) (load.Client, error) { return s.open(ctx) }

// Address implements [Peer].
func (s *postgresServer) Address() string { return s.DSN }

// Pids implements [Peer].
func (s *postgresServer) Pids() []int { return Tree(s.Pid()) }

// Version implements [Peer].
func (s *postgresServer) Version() string {
	ctx := context.Background()
	version := ""
	if conn, err := pgx.Connect(ctx, s.DSN); err == nil {
		version = conn.PgConn().ParameterStatus("server_version")
		_ = conn.Close(ctx)
	}
	return "PostgreSQL " + version + ", " + Library("pgx", "github.com/jackc/pgx/v5")
}

// Tree returns the ids of a process and of its children. PostgreSQL has a
// process for each connection.
func Tree(pid int) []int {
	pids := []int{pid}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil { // it has exited
			continue
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // state, parent, ...
		if parent, _ := strconv.Atoi(string(fields[1])); parent == pid {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, child)
		}
	}
	return pids
}

// openPostgresEngine opens clients of the engine lease/postgres.
func openPostgresEngine(dsn string) load.Target {
	return func(ctx context.Context) (load.Client, error) {
		pool, err := openPool(ctx, dsn)
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
