package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// cutConn is a connection that ends when left reads and writes of all connections are over. If late, a read that ends
// it waits until the answer is there.
type cutConn struct {
	net.Conn
	left *atomic.Int64
	late bool
}

func (c cutConn) cut() bool {
	if c.left.Add(-1) != 0 {
		return false
	}
	_ = c.Close()
	return true
}

func (c cutConn) Read(b []byte) (n int, err error) {
	if c.late {
		n, err = c.Conn.Read(b)
	}
	if c.cut() {
		return 0, io.ErrUnexpectedEOF
	}
	if !c.late {
		n, err = c.Conn.Read(b)
	}
	return n, err
}

func (c cutConn) Write(b []byte) (int, error) {
	if c.cut() {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// The connection is lost at every message of a lease, from the first one to the last one, before or after the database
// has answered. Calls that are repeated succeed, and an attempt has one token.
func TestConnectionLostAtEveryMessage(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) { loseConnections(t, late) })
	}
}

func loseConnections(t *testing.T, late bool) {
	t.Helper()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	var left atomic.Int64
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return cutConn{conn, &left, late}, err
	}
	repeat := func(call func() error) {
		t.Helper()
		for {
			err := call()
			if err == nil {
				return
			}
			require.True(t, errors.Is(err, engine.ErrUncertain) || errors.Is(err, engine.ErrUnavailable), "%v", err)
		}
	}
	for cut := int64(1); left.Load() <= 0; cut++ {
		left.Store(cut)
		pool, err := pgxpool.NewWithConfig(ctx, config.Copy())
		require.NoError(t, err)
		var b *postgres.Backend
		repeat(func() (err error) { b, err = postgres.New(ctx, pool, nil); return err })
		s, err := b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
		require.NoError(t, err)
		resource := fencing.Resource(fmt.Sprintf("cut/%d", cut))
		var granted engine.Grant
		repeat(func() (err error) {
			granted, err = s.Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{resource}})
			return err
		})
		held := engine.Held{Nonce: 1, Resources: []fencing.Resource{resource}, Name: granted.Name}
		repeat(func() error {
			extended, err := s.Renew(ctx, held)
			if err == nil {
				require.Equal(t, []engine.Nonce{1}, extended)
			}
			return err
		})
		repeat(func() error { return s.Release(ctx, held) })
		require.Greater(t, grant(t, whole, string(resource)), int64(granted.Token), "the lock is free")
		b.Close()
		pool.Close()
	}
}

// silentConn loses all answers while silent is set.
type silentConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silentConn) Read(b []byte) (n int, err error) {
	for {
		n, err = c.Conn.Read(b)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// Calls without a time limit give their connections up if the server is silent, so that later calls have some. Their
// outcome is uncertain. Waiters listen when the server answers again.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(testserver.Context(t), time.Minute)
	defer cancel()
	whole := database(t, shared.Get(t).DSN)
	set := engine.Request{Nonce: 2, Resources: []fencing.Resource{"b", "c"}}
	calls := []func(b *postgres.Backend, s engine.Session) error{
		func(_ *postgres.Backend, s engine.Session) error {
			_, err := s.Acquire(ctx, request(1, "a"))
			return err
		},
		func(_ *postgres.Backend, s engine.Session) error { _, err := s.Acquire(ctx, set); return err },
		func(_ *postgres.Backend, s engine.Session) error { return s.Release(ctx, heldBy(request(3, "d"))) },
		func(_ *postgres.Backend, s engine.Session) error { _, err := s.Renew(ctx, heldBy(set)); return err },
		func(b *postgres.Backend, _ engine.Session) error { _, err := b.Inspect(ctx, "a"); return err },
		func(b *postgres.Backend, _ engine.Session) error { _, err := b.List(ctx, "", ""); return err },
		func(b *postgres.Backend, _ engine.Session) error { _, err := b.Renew(ctx, "a", 1, 0, nil); return err },
		func(b *postgres.Backend, _ engine.Session) error { return b.Break(ctx, "a", 1) },
		func(b *postgres.Backend, _ engine.Session) error { _, err := b.Raise(ctx, 1); return err },
		func(b *postgres.Backend, _ engine.Session) error { _, _, err := b.CloseLock(ctx, "e"); return err },
	}
	var silent atomic.Bool
	config := whole.Config()
	config.MaxConns = int32(len(calls))
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return silentConn{conn, &silent}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := backend(t, pool)
	postgres.SetAnswerLimit(b, 500*time.Millisecond)
	postgres.SetPause(b, time.Millisecond)
	s := open(t, b, nil)
	silence := func() {
		var established []*pgxpool.Conn
		for range config.MaxConns {
			conn, err := pool.Acquire(ctx)
			require.NoError(t, err)
			established = append(established, conn)
		}
		for _, conn := range established {
			conn.Release()
		}
		silent.Store(true)
	}
	silence()
	failed := make(chan error, len(calls))
	for _, call := range calls {
		go func() { failed <- call(b, s) }()
	}
	for range calls {
		require.ErrorIs(t, testserver.Receive(t, failed), engine.ErrUncertain)
	}
	silent.Store(false)
	testserver.Eventually(t, "the database answers in time", func() bool {
		_, err := s.Acquire(ctx, request(4, "f"))
		return err == nil
	})

	silence()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	waiter := request(5, "f")
	waiter.Wait = true
	go func() { _, err := s.Acquire(waiting, waiter); failed <- err }()
	require.ErrorIs(t, testserver.Receive(t, failed), engine.ErrUncertain)
	silent.Store(false)
	go func() {
		_, err := s.Acquire(waiting, waiter)
		for errors.Is(err, engine.ErrUncertain) || errors.Is(err, engine.ErrUnavailable) { // an answer was late
			_, err = s.Acquire(waiting, waiter)
		}
		failed <- err
	}()
	testserver.Eventually(t, "the waiter listens", func() bool { return postgres.Listening(b) })
	stop()
	require.ErrorIs(t, testserver.Receive(t, failed), context.Canceled)
}

// A transaction that is left open is ended by the server, and its grant never was.
func TestIdleTransactionIsEnded(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	conn := connect(t, pool.Config().ConnString())
	run(t, conn, "SET search_path = "+pool.Config().ConnConfig.RuntimeParams["search_path"],
		"SET idle_in_transaction_session_timeout = '3 s'", "BEGIN")
	undone := grant(t, conn, "a")
	require.Greater(t, grant(t, pool, "a"), undone, "it waits for the end of the transaction")
}

// An acquire that arrives late, after the release and after another lease, is not granted.
func TestLateCopyAfterAnotherLease(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	ctx := testserver.Context(t)
	acquire := func(attempt string) error {
		_, err := pool.Exec(ctx, "SELECT leased_acquire(ARRAY['a'], 'h', '1 min', $1)", attempt)
		return err
	}
	for _, attempt := range []string{"the first attempt", "the second attempt"} {
		require.NoError(t, acquire(attempt))
		_, err := pool.Exec(ctx, "SELECT leased_release(ARRAY['a'], $1)", attempt)
		require.NoError(t, err)
	}
	require.ErrorContains(t, acquire("the first attempt"), "LL001")
}

// An attempt that is released again is remembered for an hour from then.
func TestSecondReleaseIsRemembered(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN)
	do(t, pool, releaseA, "UPDATE leased_ended SET at = now() - interval '59 minutes'", releaseA)
	require.Less(t, value[time.Duration](t, pool, "SELECT now() - at FROM leased_ended"), time.Minute)
}

// A session remembers that a call of an attempt was not answered, so a copy of it that arrives
// after the release and another lease is not granted.
func TestUnansweredAttemptIsRemembered(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	b := backend(t, database(t, shared.Get(t).DSN))
	s, err := b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(t, err)
	request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Acquire(gone, request)
	require.ErrorIs(t, err, context.Canceled)
	for _, nonce := range []engine.Nonce{1, 2} {
		request.Nonce = nonce
		g, err := s.Acquire(ctx, request)
		require.NoError(t, err)
		require.NoError(t, s.Release(ctx, engine.Held{Name: g.Name, Nonce: nonce, Resources: request.Resources}))
	}
	request.Nonce = 1
	_, err = s.Acquire(ctx, request)
	require.ErrorIs(t, err, engine.ErrHeld)

	// The error of a wait that has ended looks like a refusal.
	ended, end := context.WithCancelCause(ctx)
	end(engine.ErrHeld)
	request.Nonce = 4
	_, err = s.Acquire(ended, request)
	require.ErrorIs(t, err, engine.ErrHeld)
	require.Equal(t, 1, postgres.Unanswered(s))

	// A lease without a name may have been left by a call of another process.
	for _, nonce := range []engine.Nonce{3, 5} {
		request.Nonce = nonce
		_, err = s.Acquire(ctx, request)
		require.NoError(t, err)
		require.NoError(t, s.Release(ctx, heldBy(request)))
	}
	request.Nonce = 3
	_, err = s.Acquire(ctx, request)
	require.ErrorIs(t, err, engine.ErrHeld)
}

// A role does not wait for the disk at its commits. Its tokens and renewals do, so a crash forgets none of them.
func TestTokensOfAsynchronousCommits(t *testing.T) {
	t.Parallel()
	testserver.SkipIfShort(t)
	server, err := testserver.StartDurablePostgres()
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	setup := connect(t, server.DSN)
	run(t, setup, postgres.DDL(), "ALTER SYSTEM SET wal_writer_delay = '10 s'",
		"ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
	const (
		holdA     = "SELECT leased_hold('a')"
		waitA     = "SELECT leased_acquire(ARRAY['a'], 'w', '1 min', 'attempt of a waiter', NULL, '1 min', 'c')"
		handOver  = "SELECT leased_release(ARRAY['a'], 'an attempt for lock a', false, 'c')"
		handOver2 = "BEGIN; " + releaseA + "; SET LOCAL synchronous_commit = off; COMMIT"
	)
	for _, statements := range [][]string{ // the first ones wait for the disk
		{"SELECT leased_hold('b')", acquireA},
		{holdA, acquireA},
		{holdA, holdA},
		{acquireA + ";" + queueSet, releaseA, queueSet},
		{acquireA + ";" + waitA, handOver},
		{acquireA + ";" + waitA, handOver2, waitA},
		{acquireA, "SELECT leased_renew(ARRAY['a'], ARRAY['an attempt for lock a'], '1 hour')"},
		{acquireA, "SELECT leased_raise(1000000)"},
	} {
		var conn *pgx.Conn
		testserver.Eventually(t, "the setting is used", func() bool {
			conn = connect(t, server.DSN)
			return value[string](t, conn, "SHOW synchronous_commit") == "off"
		})
		run(t, conn, "TRUNCATE leased_locks, leased_waiters, leased_ended", "SET synchronous_commit = on", statements[0],
			"SET synchronous_commit = off")
		run(t, conn, statements[1:]...)
		const state = "SELECT concat_ws(' ', token, expires, last_value >= 1000000) FROM leased_locks, leased_tokens " +
			"WHERE resource = 'a'"
		last := value[string](t, conn, state)
		server.Kill()
		testserver.Eventually(t, "the server starts", func() bool { return server.Start() == nil })
		require.Equal(t, last, value[string](t, connect(t, server.DSN), state), "%s", statements)
	}
}
