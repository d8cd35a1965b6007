package client_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// pending is an Acquire on another goroutine.
type pending struct {
	t     *testing.T
	lease *lease.Lease
	err   error
	done  chan struct{}
}

// start starts an Acquire and returns when the lock has a waiter.
func start(t *testing.T, c *lease.Client, name fencing.Resource) *pending {
	t.Helper()
	p := &pending{t: t, done: make(chan struct{})}
	ctx := testserver.Context(t)
	go func() {
		defer close(p.done)
		p.lease, p.err = c.Acquire(ctx, name)
	}()
	testserver.Eventually(t, "it waits", func() bool {
		status, err := c.Inspect(ctx, name)
		return err == nil && len(status.Waiters) > 0
	})
	return p
}

func (p *pending) granted() *lease.Lease {
	p.t.Helper()
	<-p.done
	require.NoError(p.t, p.err)
	return p.lease
}

// TestMigrationToCorrectness checks that a waiter follows its lock, that the holder
// loses it with the reason, and that tokens grow.
func TestMigrationToCorrectness(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	holder, _ := s.dial()
	for name, c := range map[fencing.Resource]*lease.Client{"fast/same": holder, "fast/other": first(s.dial()),
		"fast/through": first(s.dial(client.WithoutRedis()))} {
		s.migrate("fast/", engine.Efficiency, true)
		s.awaitMigrations()
		// So that no renewal reports the loss.
		held, err := holder.Acquire(testserver.Context(t), name, lease.WithoutRenewal())
		require.NoError(t, err)
		require.Equal(t, engine.Efficiency, held.Mode())
		waiting := start(t, c, name)
		s.migrate("fast/", engine.Correctness, true)
		<-held.Done()
		require.ErrorIs(t, held.Err(), lease.ErrTaken)
		require.ErrorContains(t, held.Err(), "correctness")
		next := waiting.granted()
		require.Equal(t, engine.Correctness, next.Mode())
		require.True(t, next.Token().Newer(held.Token()))
		require.NoError(t, next.Release(testserver.Context(t)))
	}
}

// TestMigrationToEfficiency checks that a holder keeps its lock until it releases it and
// that waiters then get the lock in the other mode.
func TestMigrationToEfficiency(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	holder, _ := s.dial()
	other, _ := s.dial(client.WithoutRedis())
	held, err := holder.Acquire(testserver.Context(t), "slow/a")
	require.NoError(t, err)
	kept, err := holder.Acquire(testserver.Context(t), "elsewhere")
	require.NoError(t, err)
	waiting, through := start(t, holder, "slow/a"), start(t, other, "slow/a")
	s.migrate("slow/", engine.Efficiency, false)
	_, err = other.TryAcquire(testserver.Context(t), "slow/b")
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.ErrorContains(t, err, "migrating")
	require.NoError(t, held.Renew(testserver.Context(t)), "a holder keeps its lock")
	require.NoError(t, held.Release(testserver.Context(t)))
	last := held.Token()
	for range 2 {
		var next *lease.Lease
		select {
		case <-waiting.done:
			next = waiting.granted()
			waiting.done = nil
		case <-through.done:
			next = through.granted()
			through.done = nil
		}
		require.Equal(t, engine.Efficiency, next.Mode())
		require.True(t, next.Token().Newer(last))
		last = next.Token()
		require.NoError(t, next.Release(testserver.Context(t)))
	}
	require.NoError(t, kept.Err(), "a lock that does not migrate keeps its holder")
}

// TestMigrationNow checks that a migration without waiting breaks the holder.
func TestMigrationNow(t *testing.T) {
	t.Parallel()
	s := startService(t, 1)
	c, _ := s.dial()
	held, err := c.Acquire(testserver.Context(t), "slow/a")
	require.NoError(t, err)
	s.migrate("slow/", engine.Efficiency, true)
	<-held.Done()
	require.ErrorIs(t, held.Err(), lease.ErrLost)
	next, err := c.Acquire(testserver.Context(t), "slow/a")
	require.NoError(t, err)
	require.Equal(t, engine.Efficiency, next.Mode())
	require.True(t, next.Token().Newer(held.Token()))
}

// TestMigrationsUnderLoad migrates a lock back and forth while clients use it directly
// and through the service.
func TestMigrationsUnderLoad(t *testing.T) {
	t.Parallel()
	s := startService(t, 2)
	clients := []*lease.Client{first(s.dial()), first(s.dial()), first(s.dial(client.WithoutRedis()))}
	ctx, cancel := context.WithCancel(testserver.Context(t))
	defer cancel()
	var (
		mu     sync.Mutex
		tokens []fencing.Token
		modes  = map[engine.Mode]int{}
		wg     sync.WaitGroup
	)
	for _, c := range clients {
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := c.Acquire(ctx, "fast/a")
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					tokens = append(tokens, l.Token())
					modes[l.Mode()]++
					mu.Unlock()
					_ = l.Release(ctx)
				}
			})
		}
	}
	granted := func(mode engine.Mode) int {
		mu.Lock()
		defer mu.Unlock()
		return modes[mode]
	}
	for i := range 8 {
		mode := engine.Correctness
		if i%2 == 1 {
			mode = engine.Efficiency
		}
		before := granted(mode)
		s.migrate("fast/", mode, i%4 < 2)
		if i%4 < 2 || mode == engine.Efficiency {
			testserver.Eventually(t, "grants in the other mode", func() bool { return granted(mode) > before+10 })
			continue
		}
		s.migrate("fast/", mode, true) // do not wait for the longest TTL
		testserver.Eventually(t, "grants in the other mode", func() bool { return granted(mode) > before+10 })
	}
	cancel()
	wg.Wait()
	seen := map[fencing.Token]bool{}
	for _, token := range tokens {
		require.False(t, seen[token], "token %d was granted twice", token)
		seen[token] = true
	}
	t.Logf("%d grants in efficiency mode, %d in correctness mode", modes[engine.Efficiency], modes[engine.Correctness])
}

func first(c *lease.Client, _ *lines) *lease.Client { return c }

// breaker is a dialer that can cut all connections.
type breaker struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (b *breaker) option() client.Option {
	return client.WithRedis(func(string) *redis.Options {
		return &redis.Options{Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.isCut {
				return nil, errCut
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				b.conns = append(b.conns, conn)
			}
			return conn, err
		}}
	})
}

func (b *breaker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isCut = true
	for _, conn := range b.conns {
		_ = conn.Close()
	}
}
