package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// staggered locks the rows of locks in one transaction. free releases them one after the other, in the order of their
// names and 0.35 s apart, which is less than the time for which a call waits for a lock.
func staggered(t *testing.T, pool *pgxpool.Pool, names []fencing.Resource) (free func()) {
	t.Helper()
	tx := transaction(t, pool, pgx.ReadCommitted)
	for _, name := range slices.Backward(names) {
		_, err := tx.Exec(testserver.Context(t), fmt.Sprintf("SAVEPOINT %[1]s; "+
			"INSERT INTO leased_locks (resource) VALUES ('%[1]s') ON CONFLICT DO NOTHING; "+
			"SELECT FROM leased_locks WHERE resource = '%[1]s' FOR UPDATE", name))
		require.NoError(t, err)
	}
	return func() {
		for _, name := range names {
			_, err := tx.Exec(testserver.Context(t), "SELECT pg_sleep(0.35); ROLLBACK TO SAVEPOINT "+string(name))
			require.NoError(t, err)
		}
	}
}

func numbered(n int) (names []fencing.Resource) {
	for i := range n {
		names = append(names, fencing.Resource(fmt.Sprintf("lock_%02d", i)))
	}
	return names
}

// Waiters that share a transaction do not keep the row of a lock from its holder while they wait for the locks of
// others, one after the other.
func TestWaitersThatShareATransactionEndNoLeases(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	names := numbered(24)
	c, err := lease.New(backend(t, pool), lease.WithPolicies(engine.Policy{TTL: 5 * time.Second}))
	require.NoError(t, err)
	held, err := c.Acquire(ctx, names[0])
	require.NoError(t, err)
	free := staggered(t, pool, names[1:])

	b := backend(t, pool)
	s := open(t, b, nil)
	complete := postgres.Gather(b, len(names))
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiters sync.WaitGroup
	for i, name := range names {
		r := request(engine.Nonce(i+1), name)
		r.Wait = true
		waiters.Go(func() { _, _ = s.Acquire(waits, r) })
	}
	testserver.Eventually(t, "the waiters share a transaction", complete)
	free()
	require.NoError(t, held.Context().Err(), "the holder has renewed its lease")
	cancel()
	waiters.Wait()
}

// A renewal of many leases that is not answered in time, because it waits for one busy lock after the other, is
// repeated for each lease.
func TestUnansweredRenewalIsRepeatedForEachLease(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	b := backend(t, pool)
	s := open(t, b, nil)
	var held []engine.Held
	names := numbered(12)
	for i, name := range names {
		r := request(engine.Nonce(i+1), name)
		g, err := s.Acquire(ctx, r)
		require.NoError(t, err)
		h := heldBy(r)
		h.Name = g.Name
		held = append(held, h)
	}
	free := staggered(t, pool, names)
	postgres.SetAnswerLimit(b, 2*time.Second)
	var freed sync.WaitGroup
	freed.Go(free)
	defer freed.Wait()
	extended, err := s.Renew(ctx, held...)
	require.NoError(t, err)
	require.NotEmpty(t, extended)
}
