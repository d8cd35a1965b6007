package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
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

func requireIdle(t *testing.T, a *alone) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(t, a.locks)
	require.Equal(t, 2, a.room)
}
