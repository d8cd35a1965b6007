package postgres_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// waiter lets an attempt wait for a lock, and returns when it is queued.
func waiter(t *testing.T, s engine.Session, r engine.Request) <-chan engine.Grant {
	t.Helper()
	ctx := testserver.Context(t)
	granted, queued := make(chan engine.Grant, 1), make(chan bool)
	r.Wait, r.Queued = true, func() { close(queued) }
	go func() {
		g, err := s.Acquire(ctx, r)
		if err != nil {
			t.Error(err)
		}
		granted <- g
	}()
	testserver.Receive(t, queued)
	return granted
}

// A transaction that releases several locks may fail after it has reported the next holder of the first one. It was
// rolled back, so that waiter has no lease.
func TestFailedReleaseHandsOverNothing(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	b := backend(t, pool)
	s := open(t, b, nil)
	first, other := request(1, "a"), request(2, "b")
	for _, r := range []engine.Request{first, other} {
		_, err := s.Acquire(ctx, r)
		require.NoError(t, err)
	}
	granted := waiter(t, s, request(3, "a"))
	busy := transaction(t, pool, pgx.ReadCommitted, "SELECT FROM leased_locks WHERE resource = 'b' FOR UPDATE")
	for range 3 { // the waiter may be asking, or the listener may have woken it
		require.ErrorContains(t, postgres.ReleaseTogether(ctx, s, heldBy(first), heldBy(other)), "55P03")
		pass(t, pool, "500 ms")
	}
	require.NoError(t, busy.Rollback(ctx))
	require.NoError(t, s.Release(ctx, heldBy(first)))
	handed := testserver.Receive(t, granted)
	status, err := b.Inspect(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, status.Holders[0].Token, handed.Token)
}

// heldConn keeps back what it reads after a release was written, until the answer may arrive.
type heldConn struct {
	net.Conn
	late    *sync.WaitGroup
	release bool
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.release = bytes.Contains(b, []byte("leased_release"))
	return c.Conn.Write(b)
}

func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.release {
		c.late.Wait()
	}
	return n, err
}

// The answer of a release arrives when the lease that it has granted is over. The waiter has asked again, and another
// one holds the lock.
func TestLateAnswerHandsOverNothing(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	var late sync.WaitGroup
	config := pool.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // sends the text of each statement
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &heldConn{Conn: conn, late: &late}, err
	}
	slow, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer slow.Close()
	b := backend(t, slow)
	holding := open(t, b, nil)
	_, err = holding.Acquire(ctx, request(1, "a"))
	require.NoError(t, err)
	waiting, err := b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: 4 * time.Second})
	require.NoError(t, err)

	// The first call of the waiter fails, and it is repeated later.
	failing, fail := context.WithCancel(ctx)
	r := request(1, "a")
	r.Wait, r.Queued = true, fail
	_, err = waiting.Acquire(failing, r)
	require.ErrorIs(t, err, context.Canceled)
	late.Add(1)
	answer := sync.OnceFunc(late.Done)
	defer answer()
	released := make(chan error, 1)
	go func() { released <- holding.Release(ctx, heldBy(request(1, "a"))) }()
	testserver.Eventually(t, "the lock is handed over", func() bool {
		return value[int](t, pool, "SELECT count(*) FROM leased_waiters") == 0
	})
	testserver.Eventually(t, "that lease is over", func() bool { return value[int](t, pool, holdersA) == 0 })
	newer := grant(t, pool, "a")
	require.Positive(t, newer)
	again, end := context.WithCancel(ctx)
	defer end()
	r.Queued = func() {
		answer()
		time.AfterFunc(time.Second, end) // the waiter would return the lease before that
	}
	_, err = waiting.Acquire(again, r)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, testserver.Receive(t, released))
}

// The clock of the database is set back after leased_hold has taken a lock whose lease had expired. The token of the
// transaction stays its own.
func TestHeldTokenIsNotGrantedAgain(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, acquireA, "UPDATE leased_locks SET expires = clock_timestamp() - interval '1 s'")
	require.Positive(t, value[int64](t, pool, "SELECT leased_hold('a')"))
	do(t, pool, "UPDATE leased_locks SET expires = expires + interval '10 s'")
	_, err := pool.Exec(ctx, acquireA)
	require.ErrorContains(t, err, "LL001")
	require.Zero(t, value[int](t, pool, holdersA))
}

// endingConn reports when its end is sent, and waits before that.
type endingConn struct {
	net.Conn
	ends, proceed chan bool
}

func (c *endingConn) Write(b []byte) (int, error) {
	if bytes.Equal(b, []byte{'X', 0, 0, 0, 4}) {
		c.ends <- true
		<-c.proceed
	}
	return c.Conn.Write(b)
}

// The backend stops to listen while a waiter arrives. That waiter does not rely on notifications, and is notified when
// the backend listens again.
func TestWaiterArrivesWhenListeningEnds(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, whole, "a"))
	ends, proceed := make(chan bool, 100), make(chan bool)
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &endingConn{conn, ends, proceed}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	proceeds := sync.OnceFunc(func() { close(proceed) })
	b := backend(t, pool)
	t.Cleanup(proceeds)
	postgres.SetIdle(b, 100*time.Millisecond)
	s := open(t, b, nil)
	first := request(1, "another lock")
	first.Wait = true
	_, err = s.Acquire(ctx, first)
	require.NoError(t, err)
	testserver.Receive(t, ends)
	require.False(t, postgres.Listening(b), "it does not listen from now on")
	granted := waiter(t, s, request(2, "a"))
	proceeds()
	testserver.Eventually(t, "it listens again", func() bool { return postgres.Listening(b) })
	do(t, whole, "SELECT leased_break('a', token) FROM leased_inspect('a') WHERE token > 0")
	require.True(t, testserver.Receive(t, granted).Token.Valid())
}

// refusingConn fails when it is to listen.
type refusingConn struct {
	net.Conn
	tries *atomic.Int64
}

func (c refusingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("LISTEN")) {
		c.tries.Add(1)
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// A backend that cannot listen tries again while it has waiters, and not after that.
func TestListenerEndsWithoutWaiters(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, whole, "a"))
	var tries atomic.Int64
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return refusingConn{conn, &tries}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := backend(t, pool)
	postgres.SetPause(b, 10*time.Millisecond)
	waiting, leave := context.WithCancel(ctx)
	r := request(1, "a")
	r.Wait = true
	left := make(chan error)
	s := open(t, b, nil)
	go func() { _, err := s.Acquire(waiting, r); left <- err }()
	testserver.Eventually(t, "it tries again", func() bool { return tries.Load() > 2 })
	leave()
	require.ErrorIs(t, testserver.Receive(t, left), context.Canceled)
	testserver.Eventually(t, "it ends", func() bool { return !postgres.Running(b) })
}

// mutedConn loses what arrives after it was told to listen, while muted is set.
type mutedConn struct {
	net.Conn
	muted   *atomic.Bool
	listens bool
}

func (c *mutedConn) Write(b []byte) (int, error) {
	c.listens = c.listens || bytes.Contains(b, []byte("LISTEN"))
	return c.Conn.Write(b)
}

func (c *mutedConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.listens || !c.muted.Load() {
			return n, err
		}
	}
}

// The connection for notifications dies without a FIN or RST. Waiters soon stop relying on it, and open another one.
func TestListenerNoticesASilentConnection(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, whole, "a"))
	var muted atomic.Bool
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &mutedConn{Conn: conn, muted: &muted}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := backend(t, pool)
	postgres.SetIdle(b, 100*time.Millisecond)
	postgres.SetPause(b, 10*time.Millisecond)
	postgres.SetAnswerLimit(b, 5*time.Second)
	granted := waiter(t, open(t, b, nil), request(1, "a"))
	testserver.Eventually(t, "it listens", func() bool { return postgres.Listening(b) })
	muted.Store(true)
	testserver.Eventually(t, "it notices", func() bool { return !postgres.Listening(b) })
	muted.Store(false)
	testserver.Eventually(t, "it listens again", func() bool { return postgres.Listening(b) })
	do(t, whole, "SELECT leased_break('a', token) FROM leased_inspect('a') WHERE token > 0")
	require.True(t, testserver.Receive(t, granted).Token.Valid())
}
