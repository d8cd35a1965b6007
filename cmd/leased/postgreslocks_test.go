package main

import (
	"context"
	"net"
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
