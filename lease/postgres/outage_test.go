package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

const waiters = "SELECT count(*) FROM leased_waiters"

// flaky returns a backend on the database of a pool. It cannot connect while down is set.
func flaky(t *testing.T, whole *pgxpool.Pool, down *atomic.Bool) (*postgres.Backend, *pgxpool.Pool) {
	t.Helper()
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if down.Load() {
			return nil, errors.New("the database is down")
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(testserver.Context(t), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return backend(t, pool), pool
}

// A waiter asks again while the database cannot be reached. That call has no effect, but an earlier one has queued the
// attempt: it may be granted, so its client has to release it.
func TestQueuedAttemptIsUncertainDuringAnOutage(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, whole, "a"))
	var down atomic.Bool
	b, pool := flaky(t, whole, &down)
	r := request(1, "a")
	r.Wait, r.Queued = true, func() {
		down.Store(true)
		pool.Reset()
	}
	_, err := open(t, b, nil).Acquire(ctx, r)
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.Equal(t, 1, value[int](t, whole, waiters))
}

// Calls that had no effect leave nothing behind: nobody releases their attempts.
func TestOutageTakesNoMemory(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	var down atomic.Bool
	b, pool := flaky(t, database(t, shared.Get(t).DSN), &down)
	s := open(t, b, nil)
	down.Store(true)
	pool.Reset()
	_, err := s.Acquire(ctx, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.Zero(t, postgres.Unanswered(s))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Acquire(gone, request(2, "a"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, postgres.Unanswered(s), "it may arrive late")
}

// Many callers wait for a lock that another transaction keeps busy, some of them with another lock each, or with the
// same one. Sets of other locks do not wait for their turns.
func TestBusyLockDelaysNoSets(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	for n, others := range []string{"", "with/NN", "before/NN", "with/59", "with/59", "before/59"} {
		ctx := testserver.Context(t)
		pool := database(t, shared.Get(t).DSN)
		config := pool.Config()
		config.MaxConns = 4
		small, err := pgxpool.NewWithConfig(ctx, config)
		require.NoError(t, err)
		t.Cleanup(small.Close)
		s := open(t, backend(t, small), nil)
		if n%2 == 1 { // otherwise its row is not committed
			do(t, pool, "INSERT INTO leased_locks (resource) VALUES ('busy')")
		}
		row := transaction(t, pool, pgx.ReadCommitted, "SELECT leased_hold('busy')")
		waits, leave := context.WithCancel(ctx)
		var blocked sync.WaitGroup
		for i := range 60 {
			r := request(engine.Nonce(i+2), "busy")
			if others != "" {
				other := strings.ReplaceAll(others, "NN", fmt.Sprintf("%02d", i))
				r.Resources = engine.SortedSet(append(r.Resources, fencing.Resource(other)))
			}
			r.Wait = true
			blocked.Go(func() { _, _ = s.Acquire(waits, r) })
		}
		pass(t, pool, "2 s") // their common transactions have given up
		last := fencing.Resource(strings.ReplaceAll(cmp.Or(others, "NN"), "NN", "59"))
		set := engine.Request{Nonce: 1, Resources: engine.SortedSet([]fencing.Resource{"a", last}), Wait: true}
		// The turns of the others take 30 s. A call that does not wait would give up after tryTime.
		limited, end := context.WithTimeout(ctx, 15*time.Second)
		defer end()
		_, err = s.Acquire(limited, set)
		require.NoError(t, err)
		require.NoError(t, s.Release(limited, heldBy(set)))
		leave()
		blocked.Wait()
		require.NoError(t, row.Rollback(ctx))
	}
}

// A caller that does not wait for a lock does not wait for a transaction that keeps it either, also behind others.
func TestTryEndsBeforeTheTransactionThatKeepsTheLock(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	s := open(t, backend(t, pool), nil)
	row := transaction(t, pool, pgx.ReadCommitted, "SELECT leased_hold('a')")
	var tries sync.WaitGroup
	for i := range 40 {
		r := request(engine.Nonce(i+1), "a")
		if i%2 == 0 {
			r.Resources = append(r.Resources, "b")
		}
		tries.Go(func() {
			limited, end := context.WithTimeout(ctx, 15*time.Second)
			defer end()
			if _, err := s.Acquire(limited, r); !errors.Is(err, engine.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	tries.Wait()
	require.NoError(t, row.Rollback(ctx))
	_, err := s.Acquire(ctx, request(100, "a"))
	require.NoError(t, err)
}
