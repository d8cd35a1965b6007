package postgres_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

const waiters = "SELECT count(*) FROM leased_waiters"

// A waiter asks again while the database cannot be reached. That call has no effect, but an earlier one has queued the
// attempt: it may be granted, so its client has to release it.
func TestQueuedAttemptIsUncertainDuringAnOutage(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	whole := database(t, shared.Get(t).DSN)
	require.Positive(t, grant(t, whole, "a"))
	var down atomic.Bool
	config := whole.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if down.Load() {
			return nil, errors.New("the database is down")
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := request(1, "a")
	r.Wait, r.Queued = true, func() {
		down.Store(true)
		pool.Reset()
	}
	_, err = open(t, backend(t, pool), nil).Acquire(ctx, r)
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.Equal(t, 1, value[int](t, whole, waiters))
}
