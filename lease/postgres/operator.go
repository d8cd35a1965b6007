package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// List returns the held locks whose names begin with prefix and come after a given name, sorted
// by name, with their waiters. It returns up to 1,000 locks, and none after the last one.
func (b *Backend) List(ctx context.Context, prefix string, after fencing.Resource) (page []engine.Status, err error) {
	limited, cancel := b.pool.limit(ctx)
	defer cancel()
	rows, _ := b.pool.Query(limited, "SELECT "+partyColumns+", l.resource FROM leased_list($1, $2, 1000) l, "+
		"leased_inspect(l.resource) WITH ORDINALITY i "+
		"ORDER BY l.resource COLLATE \"C\", ordinality", prefix, string(after))
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (name string, err error) {
		p, err := party(row, &name)
		if len(page) == 0 || string(page[len(page)-1].Resource) != name {
			page = append(page, engine.Status{Resource: fencing.Resource(name), Mode: engine.Correctness})
		}
		add(&page[len(page)-1], p)
		return name, err
	})
	if err != nil {
		return nil, failure(ctx, "list", fencing.Resource(prefix), err)
	}
	return page, nil
}

// Renew extends the lease of this role with this token by ttl, or by the TTL of the lease if ttl is 0. It
// returns the TTL. metadata replaces the metadata of the lease, unless it is empty.
func (b *Backend) Renew(ctx context.Context, resource fencing.Resource, token fencing.Token, ttl time.Duration,
	metadata map[string]string) (time.Duration, error) {
	limited, cancel := b.pool.limit(ctx)
	defer cancel()
	err := b.pool.QueryRow(limited, "SELECT (extract(epoch FROM coalesce($3, i.ttl)) * 1e9)::bigint FROM "+
		"leased_inspect($1) i, "+
		"leased_renew(i.resources, array_fill(i.attempt, ARRAY[cardinality(i.resources)]), $3, $4::text::jsonb) r "+
		"WHERE i.token = $2 AND r.locks = cardinality(i.resources)", string(resource), int64(token),
		pgtype.Interval{Microseconds: ttl.Microseconds(), Valid: ttl > 0}, object(metadata)).Scan((*int64)(&ttl))
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, notHeld("renew", resource, token)
	}
	if err != nil {
		return 0, failure(ctx, "renew", resource, err)
	}
	return ttl, nil
}

// Release ends the lease of this role with this token.
func (b *Backend) Release(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return b.end(ctx, "release", resource, token,
		"SELECT r.released FROM leased_inspect($1) i, leased_release(i.resources, i.attempt) r "+
			"WHERE i.token = $2 AND i.attempt IS NOT NULL")
}

// Break ends a lease on behalf of an operator.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	return b.end(ctx, "break", resource, token, "SELECT leased_break($1, $2)")
}

// end calls a function that ends a lease.
func (b *Backend) end(ctx context.Context, call string, resource fencing.Resource, token fencing.Token,
	sql string) error {
	var ended bool
	limited, cancel := b.pool.limit(ctx)
	defer cancel()
	err := b.pool.QueryRow(limited, sql, string(resource), int64(token)).Scan(&ended)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return failure(ctx, call, resource, err)
	}
	if !ended {
		return notHeld(call, resource, token)
	}
	return nil
}

func notHeld(call string, resource fencing.Resource, token fencing.Token) error {
	return fmt.Errorf("%s %q: %w with token %d", call, string(resource), engine.ErrNotHeld, token)
}

// Raise makes all later tokens larger than floor, and returns the largest token until now.
func (b *Backend) Raise(ctx context.Context, floor fencing.Token) (last fencing.Token, err error) {
	limited, cancel := b.pool.limit(ctx)
	defer cancel()
	if err := b.pool.QueryRow(limited, "SELECT leased_raise($1)", floor).Scan(&last); err != nil {
		return fencing.None, failure(ctx, "raise the tokens", "", err)
	}
	return last, nil
}

// CloseLock takes a free lock permanently, because another lock service grants it from now on. It
// returns a token above all tokens of the lock, and whether this call has closed it rather than an earlier one. Break
// opens the lock again.
func (b *Backend) CloseLock(ctx context.Context, resource fencing.Resource) (token fencing.Token, closed bool,
	err error) {
	var last *fencing.Token
	limited, cancel := b.pool.limit(ctx)
	defer cancel()
	err = b.pool.QueryRow(limited, "SELECT token, closed FROM leased_close($1)", string(resource)).Scan(&last, &closed)
	if err != nil {
		return fencing.None, false, failure(ctx, "close", resource, err)
	}
	if last == nil {
		return fencing.None, false, fmt.Errorf("close %q: %w", string(resource), engine.ErrHeld)
	}
	return *last, closed, nil
}
