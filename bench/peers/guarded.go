package peers

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

const (
	accounts = 256
	setUp    = `CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
		INSERT INTO accounts SELECT n, 0 FROM generate_series(0, 255) n`
	pay = `UPDATE accounts SET balance = balance + 1 WHERE id = $1`
)

// guardedKinds returns writes to PostgreSQL under leases, with and without a gate, to measure what the gate costs.
// Two targets write only, under leases that stay held; two others acquire, write and release. Locks is leased in
// correctness mode.
func guardedKinds(locks Kind) []Kind {
	databases := &shared[*database]{}
	kind := func(name string, gated, pairs bool) Kind {
		return Kind{Name: name, Workloads: []string{"W5"}, Start: func(ctx context.Context, dir string) (Peer, error) {
			service, err := locks.Start(ctx, dir)
			if err != nil {
				return nil, err
			}
			db, err := databases.use(func() (*database, error) { return startDatabase(ctx) })
			if err != nil {
				service.Stop()
				return nil, err
			}
			return &guardedPeer{Peer: service, databases: databases, db: db, gated: gated, pairs: pairs}, nil
		}}
	}
	return []Kind{
		kind("plain", false, false), kind("gated", true, false),
		kind("pair-plain", false, true), kind("pair-gated", true, true),
	}
}

// database is a PostgreSQL server that several targets use. It syncs every commit.
type database struct {
	server *testserver.Server
	pool   *pgxpool.Pool
	gate   *pgxgate.Gate
}

func startDatabase(ctx context.Context) (*database, error) {
	server, err := testserver.StartDurablePostgres()
	if err != nil {
		return nil, err
	}
	d := &database{server: server}
	if d.pool, err = pgxpool.New(ctx, server.DSN+"&pool_max_conns=32"); err == nil {
		d.gate = pgxgate.New(d.pool, fencing.Rule{})
		_, failed := d.pool.Exec(ctx, setUp)
		if err = errors.Join(failed, d.gate.Install(ctx)); err != nil {
			d.pool.Close()
		}
	}
	if err != nil {
		server.Stop()
		return nil, fmt.Errorf("set up PostgreSQL for guarded writes: %w", err)
	}
	return d, nil
}

func (d *database) stop() {
	d.pool.Close()
	d.server.Stop()
}

// write adds to an account, through the gate or in a plain transaction.
func (d *database) write(ctx context.Context, gated bool, name string, token uint64) error {
	n, err := strconv.Atoi(path.Base(name)) // the number of the worker
	if err != nil {
		return err
	}
	pay := func(tx pgxgate.Tx) error {
		_, err := tx.Exec(ctx, pay, n%accounts)
		return err
	}
	if gated {
		return d.gate.Do(ctx, fencing.Resource(name), fencing.Token(token), pay)
	}
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return pay(tx) })
}

// guardedPeer is leased and PostgreSQL.
type guardedPeer struct {
	Peer
	databases    *shared[*database]
	db           *database
	gated, pairs bool
}

// Pids implements [Peer].
func (p *guardedPeer) Pids() []int { return append(p.Peer.Pids(), Tree(p.db.server.Pid())...) }

// Stop implements [Peer].
func (p *guardedPeer) Stop() {
	p.databases.leave((*database).stop)
	p.Peer.Stop()
}

// Open implements [Peer].
func (p *guardedPeer) Open(ctx context.Context) (load.Client, error) {
	locks, err := p.Peer.Open(ctx)
	if err != nil {
		return nil, err
	}
	if p.pairs {
		return &pairClient{locks, p}, nil
	}
	return &writeClient{locks: locks, peer: p, held: map[string]load.Held{}}, nil
}

// pairClient acquires a lock, and writes before it releases it.
type pairClient struct {
	load.Client
	peer *guardedPeer
}

// Acquire implements [load.Client].
func (c *pairClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	held, err := c.Client.Acquire(ctx, name)
	if err != nil {
		return load.Held{}, err
	}
	return load.Held{Token: held.Token, Release: func(ctx context.Context) error {
		return errors.Join(c.peer.db.write(ctx, c.peer.gated, name, held.Token), held.Release(ctx))
	}}, nil
}

// writeClient writes under locks that it keeps. Its Acquire is one write.
type writeClient struct {
	locks load.Client
	peer  *guardedPeer

	mu   sync.Mutex
	held map[string]load.Held
}

// Acquire writes under the lock, which the first write acquires and Close releases.
func (c *writeClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	held, err := c.hold(ctx, name)
	if err != nil {
		return held, err
	}
	held.Release = func(context.Context) error { return nil }
	return held, c.peer.db.write(ctx, c.peer.gated, name, held.Token)
}

// hold returns the lock, which it acquires the first time.
func (c *writeClient) hold(ctx context.Context, name string) (held load.Held, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, ok := c.held[name]
	if !ok {
		if held, err = c.locks.Acquire(ctx, name); err == nil {
			c.held[name] = held
		}
	}
	return held, err
}

// Close releases all locks.
func (c *writeClient) Close(ctx context.Context) error {
	var errs []error
	for _, held := range c.held {
		errs = append(errs, held.Release(ctx))
	}
	return errors.Join(append(errs, c.locks.Close(ctx))...)
}
