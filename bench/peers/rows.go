package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease/engine"
)

// A waiter polls at random intervals between these.
const minPoll, maxPoll = 10 * time.Millisecond, 30 * time.Millisecond

// The statements of a lease. An UPDATE that finds a held lease writes nothing, in contrast
// to INSERT ... ON CONFLICT DO UPDATE, which locks the row in any case. A released row
// stays, because its token must not decrease. Free space in the pages lets updates reuse
// them without touching the index.
const (
	createTable = `CREATE TABLE leases (
	name text PRIMARY KEY, owner bigint NOT NULL, token bigint NOT NULL, expires timestamptz NOT NULL
) WITH (fillfactor = 50)`

	updateRow = `UPDATE leases SET owner = $2, token = token + 1, expires = now() + interval '10 seconds'
WHERE name = $1 AND expires < now() RETURNING token`

	insertRow = `INSERT INTO leases (name, owner, token, expires) VALUES ($1, $2, 1, now() + interval '10 seconds')
ON CONFLICT (name) DO NOTHING RETURNING token`

	releaseRow = `UPDATE leases SET expires = '-infinity' WHERE name = $1 AND owner = $2 AND token = $3`
)

// openRows opens clients that take leases that are rows of a table, and poll while a lease is held.
func openRows(endpoints []string) load.Target {
	return func(ctx context.Context) (load.Client, error) {
		pool, err := openPool(ctx, endpoints[0])
		return &table{pool, rand.Int64()}, err
	}
}

// openPool opens the connections of a client to PostgreSQL.
func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	return pgxpool.NewWithConfig(ctx, config)
}

// table is a pool of connections to the table.
type table struct {
	pool  *pgxpool.Pool
	owner int64
}

// Acquire implements [load.Client]. It inserts the row if the first update finds none: a
// lock that was used before takes one statement.
func (t *table) Acquire(ctx context.Context, name string) (load.Held, error) {
	for _, statement := range []string{updateRow, insertRow} {
		if held, ok, err := t.try(ctx, statement, name); ok || err != nil {
			return held, err
		}
	}
	for {
		if err := engine.Sleep(ctx, minPoll+rand.N(maxPoll-minPoll)); err != nil {
			return load.Held{}, err
		}
		if held, ok, err := t.try(ctx, updateRow, name); ok || err != nil {
			return held, err
		}
	}
}

// try runs a statement that takes the lease, and reports whether it did.
func (t *table) try(ctx context.Context, statement, name string) (held load.Held, ok bool, err error) {
	err = t.pool.QueryRow(ctx, statement, name, t.owner).Scan(&held.Token)
	if errors.Is(err, pgx.ErrNoRows) {
		return held, false, nil
	}
	held.Release = func(ctx context.Context) error {
		tag, err := t.pool.Exec(ctx, releaseRow, name, t.owner, held.Token)
		if err == nil && tag.RowsAffected() == 0 {
			return errors.New("release a row: its lease has expired")
		}
		return err
	}
	return held, err == nil, err
}

// Close implements [load.Client].
func (t *table) Close(context.Context) error {
	t.pool.Close()
	return nil
}
