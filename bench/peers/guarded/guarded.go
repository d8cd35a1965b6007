// Package guarded writes to PostgreSQL under leases, with and without a gate, to measure
// what the gate costs. Two targets write only, under leases that stay held; two others
// acquire, write and release.
package guarded

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
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

// Kinds returns the targets. Locks is leased in correctness mode.
func Kinds(locks peers.Kind) []peers.Kind {
	db := &database{}
	kind := func(name string, gated, pairs bool) peers.Kind {
		return peers.Kind{Name: name, Workloads: []string{"W5"}, Start: func(ctx context.Context, dir string) (peers.Peer, error) {
			service, err := locks.Start(ctx, dir)
			if err != nil {
				return nil, err
			}
			if err := db.start(ctx); err != nil {
				service.Stop()
				return nil, err
			}
			return &peer{Peer: service, name: name, db: db, gated: gated, pairs: pairs}, nil
		}}
	}
	return []peers.Kind{
		kind("plain", false, false), kind("gated", true, false),
		kind("pair-plain", false, true), kind("pair-gated", true, true),
	}
}

// database is a PostgreSQL server that several targets use. It syncs every commit.
type database struct {
	mu     sync.Mutex
	users  int
	server *testserver.Server
	pool   *pgxpool.Pool
	gate   *pgxgate.Gate
}

func (d *database) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users > 0 {
		d.users++
		return nil
	}
	server, err := testserver.StartDurablePostgres()
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, server.DSN+"&pool_max_conns=32")
	if err == nil {
		d.gate = pgxgate.New(pool, fencing.Rule{})
		_, failed := pool.Exec(ctx, setUp)
		if err = errors.Join(failed, d.gate.Install(ctx)); err != nil {
			pool.Close()
		}
	}
	if err != nil {
		server.Stop()
		return fmt.Errorf("set up PostgreSQL for guarded writes: %w", err)
	}
	d.server, d.pool, d.users = server, pool, 1
	return nil
}

func (d *database) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users--; d.users == 0 {
		d.pool.Close()
		d.server.Stop()
	}
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

// peer is leased and PostgreSQL.
type peer struct {
	peers.Peer
	name         string
	db           *database
	gated, pairs bool
}

// Name implements [load.Target].
func (p *peer) Name() string { return p.name }

// Pids implements [peers.Peer].
func (p *peer) Pids() []int { return append(p.Peer.Pids(), process.Tree(p.db.server.Pid())...) }

// Stop implements [peers.Peer].
func (p *peer) Stop() {
	p.db.stop()
	p.Peer.Stop()
}

// Open implements [load.Target].
func (p *peer) Open(ctx context.Context) (load.Client, error) {
	locks, err := p.Peer.Open(ctx)
	if err != nil {
		return nil, err
	}
	if p.pairs {
		return &pairClient{locks, p}, nil
	}
	return &writeClient{locks: locks, peer: p, tokens: map[string]uint64{}}, nil
}
