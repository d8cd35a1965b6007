// Package postgres runs one PostgreSQL server and takes locks in it, in the two ways that
// programs with a database use: session-level advisory locks, and a table of leases.
//
// The server is not replicated. It syncs every commit to disk; advisory locks are in its
// memory only.
//
// The nouns, in reading order: server, the running server; advisory and rows, the ways to
// take locks.
package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

// Kinds returns the rows of the table.
func Kinds() []peers.Kind {
	return []peers.Kind{
		{
			Name:            "postgres-advisory",
			Start:           start(func(dsn string) load.Target { return advisory{dsn} }, ""),
			Attach:          func(dsn string) (load.Target, error) { return advisory{dsn}, nil },
			ClientPerWorker: true,
		},
		{
			Name:   "postgres-row",
			Start:  start(func(dsn string) load.Target { return rows{dsn} }, createTable),
			Attach: func(dsn string) (load.Target, error) { return rows{dsn}, nil },
		},
	}
}

// server is a running server.
type server struct {
	load.Target
	*testserver.Server
}

var _ peers.Peer = (*server)(nil)

// start returns a function that starts a server and runs a script in it.
func start(newTarget func(dsn string) load.Target, script string) func(context.Context, string) (peers.Peer, error) {
	return func(ctx context.Context, _ string) (peers.Peer, error) {
		s, err := testserver.StartDurablePostgres()
		if err != nil {
			return nil, err
		}
		if err := run(ctx, s.DSN, script); err != nil {
			s.Stop()
			return nil, fmt.Errorf("prepare PostgreSQL: %w", err)
		}
		return &server{newTarget(s.DSN), s}, nil
	}
}

func run(ctx context.Context, dsn, script string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, script)
	return err
}

// Address implements [peers.Peer].
func (s *server) Address() string { return s.DSN }

// Pids implements [peers.Peer].
func (s *server) Pids() []int { return process.Tree(s.Pid()) }

// Version implements [peers.Peer].
func (s *server) Version() string {
	ctx := context.Background()
	version := ""
	if conn, err := pgx.Connect(ctx, s.DSN); err == nil {
		version = conn.PgConn().ParameterStatus("server_version")
		_ = conn.Close(ctx)
	}
	return "PostgreSQL " + version + ", " + peers.Library("pgx", "github.com/jackc/pgx/v5")
}
