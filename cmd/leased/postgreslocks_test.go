package main

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
)

// beforeRenewal calls a function before each renewal.
type beforeRenewal func(ctx context.Context)

func (f beforeRenewal) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "leased_renew") {
		f(ctx)
	}
	return ctx
}

func (beforeRenewal) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// An acquire that may wait renews its lease before it answers. A lease that was lost by then is not reported.
func TestPostgresAcquireLosesItsLease(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	server := testserver.Postgres(t)
	operator, err := pgx.Connect(ctx, server.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = operator.Close(context.Background()) })
	_, err = operator.Exec(ctx, postgres.DDL())
	require.NoError(t, err)
	lost := false
	config, err := pgxpool.ParseConfig(server.DSN)
	require.NoError(t, err)
	config.ConnConfig.Tracer = beforeRenewal(func(ctx context.Context) {
		if lost {
			_, err := operator.Exec(ctx, "SELECT leased_break('a', token) FROM leased_inspect('a')")
			require.NoError(t, err)
		}
	})
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	backend, err := postgres.New(ctx, pool, nil)
	require.NoError(t, err)
	t.Cleanup(backend.Close)
	locks := &postgresLocks{backend: backend}
	request := &pb.AcquireRequest{Resource: "a", Ttl: "1m", Wait: "1m", Metadata: map[string]string{"k": "v"}}
	got, err := locks.Acquire(ctx, request)
	require.NoError(t, err)
	status, err := backend.Inspect(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, request.Metadata, status.Holders[0].Metadata)
	_, err = locks.Release(ctx, &pb.ReleaseRequest{Resource: "a", Token: got.Token})
	require.NoError(t, err)
	lost = true
	_, err = locks.Acquire(ctx, request)
	require.ErrorIs(t, err, engine.ErrNotHeld)
}

// lossyProxy passes connections on to a database. It loses the first answer of a grant, and every release after that.
type lossyProxy struct {
	database string
	granted  func() bool
	lost     atomic.Bool
	releases atomic.Int64
}

func (p *lossyProxy) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", p.database)
			if err != nil {
				_ = client.Close()
				continue
			}
			var acquires atomic.Bool // another connection listens
			go pass(client, server, func(request []byte) bool {
				if bytes.Contains(request, []byte("leased_acquire")) {
					acquires.Store(true)
				}
				if !p.lost.Load() || !bytes.Contains(request, []byte("leased_release")) {
					return true
				}
				p.releases.Add(1)
				return false
			})
			go pass(server, client, func([]byte) bool {
				return p.lost.Load() || !acquires.Load() || !p.granted() || !p.lost.CompareAndSwap(false, true)
			})
		}
	}()
	return listener.Addr().String()
}

// pass copies what it reads, until it is told not to.
func pass(from, to net.Conn, allowed func(data []byte) bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !allowed(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A command that waits, and loses the answer that grants the lock, gets that grant when it asks again.
func TestPostgresAcquireRepeatsItsAttempt(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	server := testserver.Postgres(t)
	operator, err := pgxpool.New(ctx, server.DSN)
	require.NoError(t, err)
	t.Cleanup(operator.Close)
	_, err = operator.Exec(ctx, postgres.DDL())
	require.NoError(t, err)
	held := func() (token int64) { // 0 if the test has ended
		_ = operator.QueryRow(ctx, "SELECT coalesce(max(token), 0) FROM leased_list()").Scan(&token)
		return token
	}
	config := operator.Config().ConnConfig
	address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	p := &lossyProxy{database: address, granted: func() bool { return held() > 0 }}
	flags := pflag.NewFlagSet("acquire", pflag.ContinueOnError)
	flags.String(postgresFlag, "", "")
	require.NoError(t, flags.Set(postgresFlag, strings.Replace(server.DSN, address, p.serve(t), 1)))
	got, err := (&access{flags: flags}).acquire(ctx, &pb.AcquireRequest{Resource: "a", Ttl: "5m", Wait: "20s"})
	require.NoError(t, err)
	require.True(t, p.lost.Load())
	require.Zero(t, p.releases.Load(), "a release would end the attempt for good")
	require.EqualValues(t, held(), got.Token)
	require.EqualValues(t, 1, got.Token, "the lock was granted once")
}

// A command that waits for a database that refuses connections does not try without pause.
func TestRunPausesBetweenConnections(t *testing.T) {
	t.Parallel()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = refusing.Close() })
	var tries atomic.Int64
	go func() {
		for {
			conn, err := refusing.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			_ = conn.Close()
		}
	}()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.String(postgresFlag, "", "")
	require.NoError(t, flags.Set(postgresFlag, "postgres://"+refusing.Addr().String()+"/?sslmode=disable"))
	f := &runFlags{access: &access{flags: flags}, quiet: true, wait: 2 * rewatchInterval}
	f.until = time.Now().Add(f.wait)
	_, err = f.connect(t.Context(), "a")
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.Less(t, tries.Load(), int64(20))
}
