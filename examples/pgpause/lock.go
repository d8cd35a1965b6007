//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
)

// leaseTime is how long the lock stays with a holder that does not answer.
const leaseTime = time.Second

// lockTable is a lock as many programs have one: a row with a holder and a time
// after which it may pass on. It also counts its grants; that is the token.
const lockTable = `
	CREATE TABLE IF NOT EXISTS locks (name text PRIMARY KEY, token bigint NOT NULL, expires timestamptz NOT NULL);
	INSERT INTO locks VALUES ('account/7', 0, '-infinity')
		ON CONFLICT (name) DO UPDATE SET expires = '-infinity';`

// acquire takes the lock, once it is free or the lease of its holder has run
// out.
func acquire(ctx context.Context, pool *pgxpool.Pool) (fencing.Token, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var token fencing.Token
		err := pool.QueryRow(ctx, `UPDATE locks SET token = token + 1, expires = clock_timestamp() + $1
			WHERE name = 'account/7' AND expires < clock_timestamp() RETURNING token`, leaseTime).Scan(&token)
		if !errors.Is(err, pgx.ErrNoRows) {
			return token, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fencing.None, ctx.Err()
		}
	}
}

// release gives the lock back, if it is still ours.
func release(ctx context.Context, pool *pgxpool.Pool, token fencing.Token) error {
	_, err := pool.Exec(ctx, `UPDATE locks SET expires = '-infinity' WHERE name = 'account/7' AND token = $1`, token)
	return err
}
