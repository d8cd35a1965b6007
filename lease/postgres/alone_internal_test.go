package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// Calls for one lock have their turns side by side, so that none waits behind others forever. While another
// transaction keeps the lock, they have them one at a time.
func TestCallsForOneLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &alone{room: 2, locks: map[string]*ownCalls{}}
		call := func(name string, result error) {
			_ = a.do(t.Context(), name, func() error { time.Sleep(time.Second); return result })
		}
		// together returns how many of some calls are under way at the same time.
		together := func(names ...string) int {
			var underWay, most atomic.Int32
			for _, name := range names {
				go func() {
					_ = a.do(t.Context(), name, func() error {
						if n := underWay.Add(1); n > most.Load() {
							most.Store(n)
						}
						time.Sleep(time.Second)
						underWay.Add(-1)
						return nil
					})
				}()
			}
			time.Sleep(time.Minute)
			return int(most.Load())
		}
		require.Equal(t, 2, together("a\nb", "b\nc", "c\na"))

		kept := &pgconn.PgError{Code: "55P03"}
		go call("a\nb", kept)
		go call("c", nil)
		synctest.Wait()
		require.Equal(t, 1, together("b", "b"), "after the first has found b busy")
		requireIdle(t, a)
		require.Equal(t, 2, together("b", "b"), "nobody has found b busy since")

		go call("a\nb", &pgconn.PgError{Code: "55P03", Detail: "a"})
		go call("c", nil)
		synctest.Wait()
		require.Equal(t, 2, together("b", "b"), "the first has found a busy")

		go call("b", kept)
		go func() {
			_ = a.do(t.Context(), "a\nb", func() error {
				time.Sleep(2 * time.Second)
				return &pgconn.PgError{Code: "55P03", Detail: "a"}
			})
		}()
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, 1, together("b", "b"), "the second has not tried b, which the first has found busy")

		ended, end := context.WithCancelCause(t.Context())
		for range 2 {
			go call("c", nil)
		}
		synctest.Wait()
		reason := errors.New("gone")
		end(reason)
		require.ErrorIs(t, a.do(ended, "c", func() error { return nil }), reason)
		time.Sleep(time.Minute)
		requireIdle(t, a)
	})
}

// A call that does not wait for its lock gives up, also before its first turn. It says that a transaction keeps the
// lock only if it has found the lock busy itself.
func TestTryBlamesOnlyABusyLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{verb: "acquire", alone: &alone{room: 1, locks: map[string]*ownCalls{}}}
		b.send = func(_ context.Context, calls []*call) (map[string]answer, error) {
			if calls[0].name == "slow" {
				time.Sleep(time.Minute)
				return nil, nil
			}
			time.Sleep(500 * time.Millisecond)
			return nil, &pgconn.PgError{Code: "55P03"}
		}
		var slow sync.WaitGroup
		defer slow.Wait()
		for _, test := range []struct {
			what   string
			behind time.Duration // when a slow call takes the next turn
			why    error
		}{
			{"it waits for its first turn", 0, errCrowded},
			{"it waits for its second turn", 100 * time.Millisecond, errBusy},
			{"it has a turn when its time is over", time.Minute, errBusy},
		} {
			slow.Go(func() {
				time.Sleep(test.behind)
				b.doAlone(&call{ctx: t.Context(), name: "slow"})
			})
			synctest.Wait()
			began := time.Now()
			err := b.doAlone(&call{ctx: t.Context(), name: "a\nb", try: true}).err
			require.ErrorIs(t, err, engine.ErrUnavailable, test.what)
			require.ErrorContains(t, err, test.why.Error(), test.what)
			require.LessOrEqual(t, time.Since(began), tryTime+time.Second, test.what)
			slow.Wait()
		}
	})
}

func requireIdle(t *testing.T, a *alone) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(t, a.locks)
	require.Equal(t, 2, a.room)
}
