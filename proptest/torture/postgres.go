//go:build linux

package torture

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/postgres"
)

// locksName is the name of the PostgreSQL that has the locks in histories.
const locksName = "PostgreSQL of the locks"

// leastMissed is the number of tokens that the standby misses before it is promoted.
const leastMissed = 5

// lockServers is a PostgreSQL that has the locks, and its asynchronous standby.
type lockServers struct {
	*database
	dsn             string // of both; clients use the one that accepts writes
	server, standby *testserver.Server
	promoted        bool
}

// startLocks starts a PostgreSQL with locks, and its standby.
func (w *world) startLocks(ctx context.Context) (err error) {
	l := &lockServers{}
	w.locks = l
	if l.server, err = testserver.StartPostgres(); err != nil {
		return err
	}
	setUp, err := pgx.Connect(ctx, l.server.DSN)
	if err != nil {
		return err
	}
	defer setUp.Close(ctx)
	if _, err := setUp.Exec(ctx, postgres.DDL()); err != nil {
		return err
	}
	if l.standby, err = testserver.StartStandby(l.server); err != nil {
		return err
	}
	l.dsn = "postgres://postgres@" + l.server.Addr + "," + l.standby.Addr +
		"/postgres?sslmode=disable&connect_timeout=5&target_session_attrs=read-write"
	l.database, err = openDatabase(ctx, l.dsn)
	return err
}

func (l *lockServers) stop() {
	if l.database != nil {
		l.pool.Close()
	}
	for _, s := range []*testserver.Server{l.server, l.standby} {
		if s != nil {
			s.Stop()
		}
	}
}

// locksDSN returns the DSN of the database with the locks, "" if members have them.
func (w *world) locksDSN() string {
	if w.locks == nil {
		return ""
	}
	return w.locks.dsn
}

// openLocks makes the holder take its locks from a database.
func (h *holder) openLocks(ctx context.Context, s Spec) error {
	pool, err := pgxpool.New(ctx, s.Locks+"&pool_max_conns=4")
	if err != nil {
		return err
	}
	for {
		limited, cancel := context.WithTimeout(ctx, dialLimit)
		backend, err := postgres.New(limited, pool, slog.New(slog.NewTextHandler(h.log, nil)))
		cancel()
		if err == nil {
			h.client, err = lease.New(backend, lease.WithName(s.Name))
			return err
		}
		h.note("connect: %v", err)
		if !wait(ctx, thinkTime) {
			return err
		}
	}
}

// postgres injects faults into workers, the storage and the database with the locks. Halfway
// through it promotes the standby.
func (n *nemesis) postgres(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, n.world.config.Duration)
	defer stop()
	l, half := n.world.locks, n.world.now()+n.world.config.Duration/2
	n.inject(ctx, part{2 * time.Second, []fault{{1, func(ctx context.Context, r *rand.Rand) {
		switch {
		case !l.promoted && n.world.now() > half:
			if err := n.failOver(context.WithoutCancel(ctx)); err != nil {
				n.fail(fmt.Errorf("fail over to the standby: %w", err))
			}
		case r.IntN(2) == 0:
			n.crash(ctx, l.database, locksName, "backend killed")
		default:
			server := l.server
			if l.promoted {
				server = l.standby
			}
			server.Kill()
			n.report(locksName, "server killed")
			// The memory of the killed server stays in use until its last process has ended.
			if err := retry(context.WithoutCancel(ctx), startLimit, server.Start); err != nil {
				n.fail(fmt.Errorf("restart %s: %w", locksName, err))
			}
		}
	}}}})
	if !l.promoted {
		if err := n.failOver(context.WithoutCancel(ctx)); err != nil {
			n.fail(fmt.Errorf("fail over to the standby: %w", err))
		}
	}
}

// failOver ends the replication, waits until the standby has missed grants, kills the primary
// and promotes the standby.
func (n *nemesis) failOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	l := n.world.locks
	standby, err := pgx.Connect(ctx, l.standby.DSN)
	if err != nil {
		return err
	}
	defer standby.Close(ctx)
	for _, statement := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if _, err := standby.Exec(ctx, statement); err != nil {
			return err
		}
	}
	count := func(conn *pgx.Conn, query string) (n int64) {
		if err := conn.QueryRow(ctx, query).Scan(&n); err != nil {
			return -1
		}
		return n
	}
	if !until(ctx, startLimit, func() bool { return count(standby, "SELECT count(*) FROM pg_stat_wal_receiver") == 0 }) {
		return fmt.Errorf("the replication did not end")
	}
	primary, err := pgx.Connect(ctx, l.server.DSN)
	if err != nil {
		return err
	}
	defer primary.Close(ctx)
	const last = "SELECT last_value FROM leased_tokens"
	first := count(primary, last)
	if !until(ctx, startLimit, func() bool { return count(primary, last) >= first+leastMissed }) {
		return fmt.Errorf("nothing was granted within %v", startLimit)
	}
	l.server.Kill()
	n.report(locksName, "failover")
	l.promoted = true
	_, err = standby.Exec(ctx, "SELECT pg_promote()")
	return err
}
