package postgres_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// One of two concurrent transactions takes a free lock.
func TestOneWinner(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	for _, tt := range []struct{ used, set bool }{{false, false}, {true, false}, {true, true}} {
		resource := engine.NewSessionID().String()
		if tt.used {
			_, err := pool.Exec(ctx, "INSERT INTO leased_locks (resource) VALUES ($1), ($1 || '/2')", resource)
			require.NoError(t, err)
		}
		grant := grant
		if tt.set {
			grant = grantSet
		}
		first, err := pool.Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = first.Rollback(ctx) }()
		require.Positive(t, grant(t, first, resource))
		second := make(chan int64)
		go func() { second <- grant(t, pool, resource) }()
		testserver.Eventually(t, "the second transaction waits", func() bool {
			var waiting bool
			err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
				"AND query LIKE '%leased_acquire%' AND pg_backend_pid() <> pid)").Scan(&waiting)
			return err == nil && waiting
		})
		require.NoError(t, first.Commit(ctx))
		require.Zero(t, testserver.Receive(t, second))
	}
}

// A waiter that disappears keeps its place for about one TTL, as a holder keeps its lock.
func TestPlaceOfAWaiter(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, pool, "a"))
	backend, err := postgres.New(testserver.Context(t), pool, nil)
	require.NoError(t, err)
	for ttl, place := range map[time.Duration]time.Duration{time.Second: 6 * time.Second, 9 * time.Second: 9 * time.Second,
		time.Hour: 15 * time.Second} {
		s, err := backend.Open(testserver.Context(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl,
			Clock: engine.SystemClock()})
		require.NoError(t, err)
		ctx, gone := context.WithCancel(testserver.Context(t))
		waiter := request(1, "a")
		waiter.Wait, waiter.Queued = true, gone
		_, err = s.Acquire(ctx, waiter)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, place, value[time.Duration](t, pool, "SELECT expires - queued FROM leased_waiters"), "%v", ttl)
		do(t, pool, "DELETE FROM leased_waiters")
	}
}

// A lock goes to its waiters in order, also when its lease has expired.
func TestQueue(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	ask := func(attempt string) (token int64, place int64) {
		require.NoError(t, pool.QueryRow(ctx,
			"SELECT coalesce(token, 0), coalesce(place, 0) FROM leased_acquire(ARRAY['a'], $1, '1 min', 'attempt number "+
				"'||$1, NULL, '1 min')",
			attempt).Scan(&token, &place))
		return token, place
	}
	first, _ := ask("1")
	require.Positive(t, first)
	for i, attempt := range []string{"2", "3", "4"} {
		_, place := ask(attempt)
		require.Equal(t, int64(i+1), place)
	}
	_, err := pool.Exec(ctx, "UPDATE leased_locks SET expires = now()")
	require.NoError(t, err)
	token, _ := ask("3")
	require.Zero(t, token, "2 is ahead")
	require.Zero(t, grant(t, pool, "a"), "waiters are ahead")
	second, _ := ask("2")
	require.Greater(t, second, first)
	_, err = pool.Exec(ctx, "SELECT leased_release(ARRAY['a'], 'attempt number 3')") // leaves the queue
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "SELECT leased_release(ARRAY['a'], 'attempt number 2')")
	require.NoError(t, err)
	var holder string
	require.NoError(t, pool.QueryRow(ctx, "SELECT holder FROM leased_inspect('a') WHERE token > 0").Scan(&holder))
	require.Equal(t, "4", holder, "the release has granted the lock")
	fourth, _ := ask("4")
	require.Greater(t, fourth, second)
}

// A set has one token, and waits without blocking others for locks that are free.
func TestSets(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	ask := func(attempt string, resources ...string) (token int64) {
		require.NoError(t, pool.QueryRow(ctx,
			"SELECT coalesce(token, 0) FROM leased_acquire($1, $2, '1 min', 'attempt number '||$2, NULL, '1 min')",
			resources, attempt).Scan(&token))
		return token
	}
	release := func(attempt string, resources ...string) {
		_, err := pool.Exec(ctx, "SELECT leased_release($1, 'attempt number '||$2)", resources, attempt)
		require.NoError(t, err)
	}
	require.Positive(t, ask("1", "b"))
	require.Zero(t, ask("2", "c", "b", "a"))
	require.Zero(t, ask("3", "c"), "the set is ahead")
	release("1", "b")
	set := ask("2", "a", "b", "c")
	require.Positive(t, set)
	require.Zero(t, ask("3", "c"))
	var broken bool
	require.NoError(t, pool.QueryRow(ctx, "SELECT leased_break('a', $1)", set).Scan(&broken))
	require.True(t, broken)
	require.Greater(t, ask("3", "c"), set, "the whole set was broken")
	require.Positive(t, ask("4", "a", "b"))
}

// A repeated attempt returns the lease as it is: it does not last longer.
func TestRepeatedAttemptKeepsItsTime(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	clock := engine.MonotonicClock()
	s, err := backend(t, database(t, shared.Get(t).DSN)).Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(),
		TTL: time.Minute, Clock: clock})
	require.NoError(t, err)
	request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}}
	first, err := s.Acquire(ctx, request)
	require.NoError(t, err)
	granted := clock.Now()
	again, err := s.Acquire(ctx, request)
	require.NoError(t, err)
	require.Equal(t, first.Token, again.Token)
	require.GreaterOrEqual(t, again.Sent.Until(granted), time.Duration(0), "the lease counts from its grant")
}

// The error of a call says whether it may have had an effect, and what to do.
func TestFailures(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	server := shared.Get(t)
	empty, err := pgxpool.New(ctx, server.DSN)
	require.NoError(t, err)
	defer empty.Close()
	_, err = postgres.New(ctx, empty, nil)
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, "leased postgres ddl")

	pool := database(t, server.DSN)
	b := backend(t, pool)
	s, err := b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(t, err)
	lock, err := pool.Begin(ctx) // an acquire waits for this transaction
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(ctx) }()
	_, err = lock.Exec(ctx, "INSERT INTO leased_locks (resource) VALUES ('a')")
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		_, err := s.Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
		failed <- err
	}()
	testserver.Eventually(t, "the acquire is ended", func() bool {
		var ended int
		err := lock.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_locks "+
			"WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))").Scan(&ended) // others use the server
		return err == nil && ended == 1
	})
	err = testserver.Receive(t, failed)
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.NotErrorIs(t, err, engine.ErrUnavailable)
	require.NoError(t, lock.Rollback(ctx))
	require.NoError(t, s.Release(ctx, engine.Held{Nonce: 1, Resources: []fencing.Resource{"a"}}))
}

// lossyConn loses the answers of the server once lost is set.
type lossyConn struct {
	net.Conn
	lost *atomic.Bool
}

func (c lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b) // the answer arrives, so the statement has been committed
	if c.lost.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// An answer is lost after the database has granted the lock. The attempt finds its grant.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	var lost atomic.Bool
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return lossyConn{Conn: conn, lost: &lost}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer pool.Close()
	s, err := backend(t, pool).Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(t, err)
	request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}}
	_, err = s.Acquire(ctx, request) // prepares the statement on the connection
	require.NoError(t, err)
	require.NoError(t, s.Release(ctx, engine.Held{Nonce: 1, Resources: request.Resources}))
	request.Nonce = 2
	lost.Store(true)
	_, err = s.Acquire(ctx, request)
	require.ErrorIs(t, err, engine.ErrUncertain)
	lost.Store(false)
	status, err := backend(t, whole).Inspect(ctx, "a")
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	_, err = s.Acquire(ctx, request)
	require.NoError(t, err)
}

// Leases are listed with their waiters, whatever metadata their holders chose, and are renewed
// and released by their token.
func TestLeasesByToken(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	b := backend(t, pool)
	acquire := func(name, metadata string) {
		_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY[$1, $1 || '/2'], 'h', '1 min', 'attempt of the lock ' || "+
			"$1, $2, '1 min')", name, metadata)
		require.NoError(t, err)
	}
	acquire("p/a", `{"n": 1}`)
	acquire("p/b", `[1]`)
	acquire("q", `{}`)
	_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['p/b'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min')")
	require.NoError(t, err)
	page, err := b.List(ctx, "p/", "")
	require.NoError(t, err)
	require.Len(t, page, 4)
	require.Equal(t, map[string]string{"n": "1"}, page[0].Holders[0].Metadata)
	require.Equal(t, fencing.Resource("p/b"), page[2].Resource)
	require.Len(t, page[2].Waiters, 1)
	after, err := b.List(ctx, "p/", "p/b")
	require.NoError(t, err)
	require.Len(t, after, 1)

	token := page[0].Holders[0].Token
	_, err = pool.Exec(ctx, "UPDATE leased_locks SET expires = expires - interval '30 s'")
	require.NoError(t, err)
	ttl, err := b.Renew(ctx, "p/a/2", token, 0, nil)
	require.NoError(t, err)
	require.Equal(t, time.Minute, ttl)
	for _, name := range []fencing.Resource{"p/a", "p/a/2"} {
		status, err := b.Inspect(ctx, name)
		require.NoError(t, err)
		require.Greater(t, status.Holders[0].TTL, 30*time.Second, "the whole set was renewed")
	}
	ttl, err = b.Renew(ctx, "p/a", token, 2*time.Minute, map[string]string{"step": "2"})
	require.NoError(t, err)
	require.Equal(t, 2*time.Minute, ttl)
	status, err := b.Inspect(ctx, "p/a/2")
	require.NoError(t, err)
	require.Greater(t, status.Holders[0].TTL, time.Minute)
	require.Equal(t, map[string]string{"step": "2"}, status.Holders[0].Metadata)
	require.NoError(t, b.Release(ctx, "p/a/2", token))
	require.ErrorIs(t, b.Release(ctx, "p/a", token), engine.ErrNotHeld, "the whole set was released")
	_, err = b.Renew(ctx, "p/a", token, 0, nil)
	require.ErrorIs(t, err, engine.ErrNotHeld)
	_, err = pool.Exec(ctx, "SELECT leased_renew(ARRAY['q'], ARRAY['attempt of the lock q'], '2 days')")
	require.ErrorContains(t, err, "LL002")
}

// A role may store any JSON with its leases and waiters. It keeps nobody from seeing them, or from using other locks.
func TestMetadataOfOthers(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	for _, tt := range []struct {
		metadata string
		want     map[string]string
	}{
		{`{"n": 1e30, "large": 1e400, "text": "t"}`, map[string]string{"n": "1" + strings.Repeat("0", 30),
			"large": "1" + strings.Repeat("0", 400), "text": "t"}},
		{`{"text": "t", "nested": {"n": 1e400}}`, map[string]string{"text": "t",
			"nested": "map[n:1" + strings.Repeat("0", 400) + "]"}},
		{`[1e400]`, nil}, {`1e400`, nil}, {`null`, nil}, {`{}`, nil},
	} {
		do(t, pool, "TRUNCATE leased_locks, leased_waiters")
		for _, attempt := range []string{"attempt of a holder", "attempt of a waiter"} {
			_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['leased'], 'h', '1 min', $1, $2, '1 min')", attempt,
				tt.metadata)
			require.NoError(t, err)
		}
		b := backend(t, pool)
		status, err := b.Inspect(ctx, "leased")
		require.NoError(t, err, tt.metadata)
		require.Equal(t, tt.want, status.Holders[0].Metadata)
		require.Equal(t, tt.want, status.Waiters[0].Metadata)
		page, err := b.List(ctx, "", "")
		require.NoError(t, err)
		require.Len(t, page, 1)
	}
	do(t, pool, "UPDATE leased_locks SET granted = 'infinity'")
	b := backend(t, pool) // it reads no lock
	_, err := b.Inspect(ctx, "leased")
	require.Error(t, err)
}

// A closed lock is granted to nobody until it is opened, and its tokens are below the one that
// closing returned.
func TestCloseLock(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	b := backend(t, pool)
	first := grant(t, pool, "a")
	_, closes, err := b.CloseLock(ctx, "a")
	require.ErrorIs(t, err, engine.ErrHeld)
	require.False(t, closes)
	require.NoError(t, b.Break(ctx, "a", fencing.Token(first)))
	closed, closes, err := b.CloseLock(ctx, "a")
	require.NoError(t, err)
	require.True(t, closes)
	require.Greater(t, int64(closed), first)
	again, closes, err := b.CloseLock(ctx, "a")
	require.NoError(t, err)
	require.False(t, closes, "it was closed before")
	require.Equal(t, closed, again)
	_, err = pool.Exec(ctx, "UPDATE leased_locks SET expires = expires - interval '1 year'")
	require.NoError(t, err)
	require.Zero(t, grant(t, pool, "a"), "a year later")
	require.NoError(t, b.Break(ctx, "a", closed))
	require.Greater(t, grant(t, pool, "a"), int64(closed))
}
