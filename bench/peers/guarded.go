package peers

import (
	"context"
	"errors"
	"path"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
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
	start := sharing(func(ctx context.Context, dir string) (*Cluster, error) {
		service, err := locks.Start(ctx, dir)
		if err != nil {
			return nil, err
		}
		database, err := postgresStarter(setUp)(ctx, dir)
		if err != nil {
			service.Stop()
			return nil, err
		}
		service.join(database)
		service.Endpoints = append(service.Endpoints[:nodes:nodes], database.Endpoints...)
		return service, nil
	})
	kind := func(name string, gated, pairs bool) Kind {
		return Kind{Name: name, Workloads: []string{"W5"}, Start: start, Open: func(endpoints []string) load.Target {
			return func(ctx context.Context) (load.Client, error) {
				return openGuarded(ctx, locks.Open(endpoints[:nodes]), endpoints[nodes], gated, pairs)
			}
		}}
	}
	return []Kind{
		kind("plain", false, false), kind("gated", true, false),
		kind("pair-plain", false, true), kind("pair-gated", true, true),
	}
}

// openGuarded opens a client of the locks, and connections to the database.
func openGuarded(ctx context.Context, locks load.Target, dsn string, gated, pairs bool) (load.Client, error) {
	pool, err := pgxpool.New(ctx, dsn+"&pool_max_conns=32")
	if err != nil {
		return nil, err
	}
	c := pairClient{pool: pool, gate: pgxgate.New(pool, fencing.Rule{}), gated: gated}
	if err = c.gate.Install(ctx); err == nil {
		c.Client, err = locks(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	if pairs {
		return &c, nil
	}
	return &writeClient{pairClient: c, held: map[string]load.Held{}}, nil
}

// pairClient acquires a lock, and writes before it releases it.
type pairClient struct {
	load.Client // of the locks
	pool        *pgxpool.Pool
	gate        *pgxgate.Gate
	gated       bool
}

// write adds to an account, through the gate or in a plain transaction.
func (c *pairClient) write(ctx context.Context, name string, token uint64) error {
	n, err := strconv.Atoi(path.Base(name)) // the number of the worker
	if err != nil {
		return err
	}
	pay := func(tx pgxgate.Tx) error {
		_, err := tx.Exec(ctx, pay, n%accounts)
		return err
	}
	if c.gated {
		return c.gate.Do(ctx, fencing.Resource(name), fencing.Token(token), pay)
	}
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return pay(tx) })
}

// Acquire implements [load.Client].
func (c *pairClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	held, err := c.Client.Acquire(ctx, name)
	if err != nil {
		return load.Held{}, err
	}
	return load.Held{Token: held.Token, Release: func(ctx context.Context) error {
		return errors.Join(c.write(ctx, name, held.Token), held.Release(ctx))
	}}, nil
}

// Close implements [load.Client].
func (c *pairClient) Close(ctx context.Context) error {
	c.pool.Close()
	return c.Client.Close(ctx)
}

// writeClient writes under locks that it keeps. Its Acquire is one write.
type writeClient struct {
	pairClient

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
	return held, c.write(ctx, name, held.Token)
}

// hold returns the lock, which it acquires the first time.
func (c *writeClient) hold(ctx context.Context, name string) (held load.Held, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, ok := c.held[name]
	if !ok {
		if held, err = c.Client.Acquire(ctx, name); err == nil {
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
	return errors.Join(append(errs, c.pairClient.Close(ctx))...)
}
