package postgres_test

import (
	"context"
	"errors"
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

func open(t *testing.T, b engine.Backend, clock engine.Clock) engine.Session {
	t.Helper()
	s, err := b.Open(testserver.Context(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute,
		Clock: clock})
	require.NoError(t, err)
	return s
}

func request(nonce engine.Nonce, resource fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: []fencing.Resource{resource}}
}

func heldBy(r engine.Request) engine.Held { return engine.Held{Nonce: r.Nonce, Resources: r.Resources} }

// Several attempts in one transaction have the outcomes that they would have alone.
func TestSeveralAttempts(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	acquire := func(names ...string) (tokens map[string]int64, err error) {
		n := len(names)
		attempts := make([]string, n)
		for i := range names {
			attempts[i] = fmt.Sprint("attempt number ", i+1)
		}
		rows, err := pool.Query(ctx, postgres.AcquireLocks, names, names, slices.Repeat([]time.Duration{time.Minute}, n),
			attempts, make([]*string, n), slices.Repeat([]time.Duration{time.Minute}, n), "c")
		require.NoError(t, err)
		tokens = map[string]int64{}
		var attempt string
		var token *int64
		_, err = pgx.ForEachRow(rows, []any{&attempt, &token, nil, nil, nil}, func() error {
			if token != nil {
				tokens[attempt] = *token
			}
			return nil
		})
		return tokens, err
	}
	for _, name := range []string{"held", "expired", "waited"} {
		require.Positive(t, grant(t, pool, name))
	}
	_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['waited'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "UPDATE leased_locks SET expires = now() WHERE resource <> 'held'")
	require.NoError(t, err)
	first, err := acquire("held", "expired", "waited", "new", "new") // attempts 1 to 5
	require.NoError(t, err)
	require.Len(t, first, 2)
	require.Positive(t, first["attempt number 2"])
	require.Positive(t, first["attempt number 4"])
	again, err := acquire("held", "expired", "waited", "new", "new")
	require.NoError(t, err)
	require.Equal(t, first, again, "repeated attempts")

	_, err = pool.Exec(ctx, postgres.ReleaseLocks, []string{"expired", "new", "waited"},
		[]string{"attempt number 2", "attempt number 4", "attempt number 3"}, make([]bool, 3), "another channel")
	require.NoError(t, err)
	var holders []string
	require.NoError(t, pool.QueryRow(ctx, "SELECT array_agg(resource || ' ' || attempt ORDER BY resource) FROM "+
		"leased_locks WHERE expires > now() AND resource <> 'held'").Scan(&holders))
	require.Equal(t, []string{"new attempt number 5", "waited attempt of a waiter"}, holders,
		"the releases have granted the locks to the next waiters")
	_, err = pool.Exec(ctx, "UPDATE leased_locks SET attempt = NULL WHERE expires IS NULL")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "SELECT leased_release(ARRAY['expired'], 'attempt number 2')")
	require.NoError(t, err)
	_, err = acquire("free 1", "expired")
	require.ErrorContains(t, err, "LL001", "an attempt that has ended")
}

// Every way to a token compares the origin of the database with the one that it knows, also for a lock that has a row.
func TestEveryWayRaisesTheTokens(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	last := int64(0)
	for _, call := range []string{
		"SELECT token FROM leased_acquire(ARRAY['a'], 'h', '1 min', gen_random_uuid()::text)",
		"SELECT leased_hold('a')",
	} {
		for _, origin := range []string{"leased_origin.server", "'another server'"} {
			_, err := pool.Exec(ctx, "INSERT INTO leased_locks (resource) VALUES ('a') "+
				"ON CONFLICT (resource) DO UPDATE SET expires = NULL")
			require.NoError(t, err)
			moved(t, pool, "server = "+origin)
			var token int64
			require.NoError(t, pool.QueryRow(ctx, call).Scan(&token))
			require.Equal(t, origin != "leased_origin.server", token > last+step/2, "%s: %d after %d", call, token, last)
			last = token
		}
	}
}

// Locks that another transaction keeps busy, and calls that the database refuses, do not keep other calls of the
// client from their locks.
func TestBusyLockDelaysNoOthers(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	s := open(t, backend(t, pool), nil)
	transaction, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = transaction.Rollback(ctx) }()
	var blocked sync.WaitGroup
	waits, cancel := context.WithCancel(ctx)
	for nonce := range engine.Nonce(5) { // more than transactions at one time
		busy := fmt.Sprintf("busy %d", nonce)
		require.Positive(t, grant(t, transaction, busy))
		blocked.Go(func() {
			if _, err := s.Acquire(waits, request(100+nonce, fencing.Resource(busy))); err == nil {
				t.Error("the lock is held")
			}
		})
	}
	limited, end := context.WithTimeout(ctx, time.Minute) // the others do not wait for the transaction
	defer end()
	var others sync.WaitGroup
	for nonce := range engine.Nonce(40) {
		others.Go(func() {
			r := request(1+nonce, fencing.Resource(fmt.Sprintf("lock %d", nonce)))
			ended := nonce%10 == 0
			if ended {
				if err := s.Release(limited, heldBy(r)); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Acquire(limited, r); ended != errors.Is(err, engine.ErrHeld) || !ended && err != nil {
				t.Error(nonce, err)
			}
			if err := s.Release(limited, heldBy(r)); err != nil {
				t.Error(err)
			}
		})
	}
	others.Wait()
	cancel()
	blocked.Wait()
}

// A waiter of the same process gets its token with the answer of the release. Its lease counts from a moment before
// the grant, and the grant is on disk: it survives a crash, as does every grant.
func TestHandoffIsOnDisk(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	server, err := testserver.StartDurablePostgres()
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	ctx := testserver.Context(t)
	pool := database(t, server.DSN)
	setup := connect(t, server.DSN)
	const commit = 100 * time.Millisecond
	run(t, setup, "ALTER SYSTEM SET wal_writer_delay = '10 s'", "ALTER SYSTEM SET commit_siblings = 0",
		fmt.Sprint("ALTER SYSTEM SET commit_delay = ", commit.Microseconds()), "SELECT pg_reload_conf()")
	b := backend(t, pool)
	clock := engine.MonotonicClock()
	s := open(t, b, clock)
	first := request(10, "another lock") // starts to listen; waiters that are there then ask again
	first.Wait = true
	_, err = s.Acquire(ctx, first)
	require.NoError(t, err)
	testserver.Eventually(t, "the backend listens", func() bool {
		return value[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'") == 1
	})
	pass(t, pool, "500 ms")
	_, err = s.Acquire(ctx, request(1, "a"))
	require.NoError(t, err)
	granted, queued := make(chan engine.Grant), make(chan bool)
	go func() {
		r := request(2, "a")
		r.Wait, r.Queued = true, func() { close(queued) }
		g, err := s.Acquire(ctx, r)
		if err != nil {
			t.Error(err)
		}
		granted <- g
	}()
	testserver.Receive(t, queued)
	require.NoError(t, s.Release(ctx, heldBy(request(1, "a"))))
	answered := clock.Now()
	handed := testserver.Receive(t, granted)
	require.GreaterOrEqual(t, answered.Since(handed.Sent), commit, "the lease has begun before the grant was on disk")
	server.Kill()
	testserver.Eventually(t, "the server starts", func() bool { return server.Start() == nil })
	var status engine.Status
	testserver.Eventually(t, "the database answers", func() (ok bool) {
		status, err = b.Inspect(ctx, "a")
		return err == nil
	})
	require.Len(t, status.Holders, 1)
	require.Equal(t, handed.Token, status.Holders[0].Token)
}

// A release grants the lock to a waiter of another process, which asks for its token.
func TestHandoffBetweenProcesses(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	first, second := open(t, backend(t, pool), nil), open(t, backend(t, pool), nil)
	held, err := first.Acquire(ctx, request(1, "a"))
	require.NoError(t, err)
	granted, queued := make(chan engine.Grant), make(chan bool)
	go func() {
		r := request(1, "a")
		r.Wait, r.Queued = true, func() { close(queued) }
		g, err := second.Acquire(ctx, r)
		if err != nil {
			t.Error(err)
		}
		granted <- g
	}()
	testserver.Receive(t, queued)
	require.NoError(t, first.Release(ctx, heldBy(request(1, "a"))))
	require.Greater(t, testserver.Receive(t, granted).Token, held.Token)
}

// leased_hold holds a lock for a transaction.
func TestHold(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	hold := func(c querier, resource string) (token int64) {
		require.NoError(t, c.QueryRow(ctx, "SELECT coalesce(leased_hold($1), 0)", resource).Scan(&token))
		return token
	}
	last := int64(0)
	const rounds = 4
	for round := range rounds { // of a lock without a row, and with one
		transaction, err := pool.Begin(ctx)
		require.NoError(t, err)
		token := hold(transaction, "a")
		require.Greater(t, token, last)
		next := make(chan int64)
		go func() {
			if round < rounds-1 {
				next <- hold(pool, "a")
			} else {
				next <- grant(t, pool, "a")
			}
		}()
		testserver.Eventually(t, "the second transaction waits", func() bool {
			var waiting bool
			err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
				"AND query ~ 'leased_(hold|acquire)' AND pg_backend_pid() <> pid)").Scan(&waiting)
			return err == nil && waiting
		})
		token = hold(transaction, "a") // the waiting call has drawn a token before
		require.NoError(t, transaction.Commit(ctx))
		last = testserver.Receive(t, next)
		require.Greater(t, last, token, "the later transaction has the larger token")
	}
	require.Zero(t, hold(pool, "a"), "the lock is held")
	_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['a'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "UPDATE leased_locks SET expires = now()")
	require.NoError(t, err)
	require.Zero(t, hold(pool, "a"), "another one waits")
}

// A lock that another transaction keeps busy does not keep other leases from their renewals: not by its row, and not
// by the connections of the calls that wait for it.
func TestBusyLockEndsNoLeases(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	config := pool.Config()
	config.MaxConns = 4
	small, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer small.Close()
	c, err := lease.New(backend(t, small), lease.WithPolicies(engine.Policy{TTL: 10 * time.Second}))
	require.NoError(t, err)
	mine, err := c.Acquire(ctx, "mine")
	require.NoError(t, err)
	busy, err := c.Acquire(ctx, "busy")
	require.NoError(t, err)
	row := transaction(t, pool, pgx.ReadCommitted, "SELECT FROM leased_locks WHERE resource = 'busy' FOR UPDATE",
		"SELECT leased_hold('new')")
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	var blocked sync.WaitGroup
	for range 8 {
		blocked.Go(func() { _, _ = c.Acquire(waits, "new") })
	}
	testserver.Eventually(t, "the lease of the busy lock ends", func() bool { return busy.Context().Err() != nil })
	require.NoError(t, mine.Context().Err(), "the other lease")
	pass(t, pool, "10 s")
	require.NoError(t, mine.Context().Err(), "the other lease")
	require.NoError(t, row.Rollback(ctx))
	cancel()
	blocked.Wait()
	require.NoError(t, mine.Release(ctx))
}

// Many leases of a client have a lock that another transaction keeps busy. Its other leases are renewed in time.
func TestManyBusyLocksEndNoOtherLeases(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	s := open(t, backend(t, pool), nil)
	var held []engine.Held
	for i := range engine.Nonce(33) { // the last one stays free
		r := request(i+1, fencing.Resource(fmt.Sprintf("lock/%02d", i)))
		g, err := s.Acquire(ctx, r)
		require.NoError(t, err)
		h := heldBy(r)
		h.Name = g.Name
		held = append(held, h)
	}
	transaction(t, pool, pgx.ReadCommitted, "SELECT FROM leased_locks WHERE resource < 'lock/32' FOR UPDATE")
	testserver.Eventually(t, "the last lease is renewed", func() bool {
		limited, cancel := context.WithTimeout(ctx, 3*time.Second) // of the busy ones, one after the other takes 4
		defer cancel()
		extended, _ := s.Renew(limited, held...)
		return slices.Equal(extended, []engine.Nonce{33})
	})
}

// A renewal that the database ends because it waits for a busy lock, before the lock timeout, does not end the other
// leases.
func TestStatementTimeoutEndsNoOtherLeases(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	config := pool.Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = "400ms"
	hurried, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(hurried.Close)
	holder := open(t, backend(t, pool), nil)
	var held []engine.Held
	for i, name := range []fencing.Resource{"busy", "mine"} {
		h := heldBy(request(engine.Nonce(i+1), name))
		g, err := holder.Acquire(ctx, request(h.Nonce, name))
		require.NoError(t, err)
		h.Name = g.Name
		held = append(held, h)
	}
	var b *postgres.Backend
	testserver.Eventually(t, "the database answers in time", func() bool {
		b, err = postgres.New(ctx, hurried, nil)
		return err == nil
	})
	t.Cleanup(b.Close)
	s := open(t, b, nil)
	row := transaction(t, pool, pgx.ReadCommitted, "SELECT FROM leased_locks WHERE resource = 'busy' FOR UPDATE")
	var extended []engine.Nonce
	for range 10 { // the machine may be slow
		if extended, _ = s.Renew(ctx, held...); len(extended) > 0 {
			break
		}
	}
	require.Equal(t, []engine.Nonce{2}, extended)
	require.NoError(t, row.Rollback(ctx))
}
