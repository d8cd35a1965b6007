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

// start begins an Acquire, and returns when the lock's other waiters see it.
func start(t *testing.T, c *lease.Client, name fencing.Resource) *pending {
	t.Helper()
	p := &pending{t: t, done: make(chan struct{})}
	ctx := patient(t)
	go func() {
		defer close(p.done)
		p.lease, p.err = c.Acquire(ctx, name)
	}()
	eventually(t, "it waits", func() bool {
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

// TestMoveToCorrectness: a waiter follows its lock, a holder is told why it has lost
// it, and tokens grow.
func TestMoveToCorrectness(t *testing.T) {
	s := startService(t, 1)
	holder, _ := s.dial()
	for name, c := range map[fencing.Resource]*lease.Client{"fast/same": holder, "fast/other": first(s.dial()), "fast/through": first(s.dial(client.WithoutRedis()))} {
		s.move("fast/", engine.Efficiency, true)
		s.settled()
		held, err := holder.Acquire(patient(t), name, lease.WithoutRenewal()) // so that no renewal tells
		require.NoError(t, err)
		require.Equal(t, engine.Efficiency, held.Mode())
		waiting := start(t, c, name)
		s.move("fast/", engine.Correctness, true)
		<-held.Done()
		require.ErrorIs(t, held.Err(), engine.ErrTaken)
		require.ErrorContains(t, held.Err(), "correctness")
		next := waiting.granted()
		require.Equal(t, engine.Correctness, next.Mode())
		require.True(t, next.Token().Newer(held.Token()))
		require.NoError(t, next.Release(patient(t)))
	}
}

// TestMoveToEfficiency: a holder keeps its lock until it releases it, then a waiter
// gets it in the other mode.
func TestMoveToEfficiency(t *testing.T) {
	s := startService(t, 1)
	holder, _ := s.dial()
	other, _ := s.dial(client.WithoutRedis())
	held, err := holder.Acquire(patient(t), "slow/a")
	require.NoError(t, err)
	kept, err := holder.Acquire(patient(t), "elsewhere")
	require.NoError(t, err)
	waiting, through := start(t, holder, "slow/a"), start(t, other, "slow/a")
	s.move("slow/", engine.Efficiency, false)
	_, err = other.TryAcquire(patient(t), "slow/b")
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "moving")
	require.NoError(t, held.Renew(patient(t)), "a holder keeps its lock")
	require.NoError(t, held.Release(patient(t)))
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
		require.NoError(t, next.Release(patient(t)))
	}
	require.NoError(t, kept.Err(), "a lock that does not move is not touched")
}

// TestMoveNow breaks the holder in correctness mode.
func TestMoveNow(t *testing.T) {
	s := startService(t, 1)
	c, _ := s.dial()
	held, err := c.Acquire(patient(t), "slow/a")
	require.NoError(t, err)
	s.move("slow/", engine.Efficiency, true)
	<-held.Done()
	require.ErrorIs(t, held.Err(), engine.ErrLost)
	next, err := c.Acquire(patient(t), "slow/a")
	require.NoError(t, err)
	require.Equal(t, engine.Efficiency, next.Mode())
	require.True(t, next.Token().Newer(held.Token()))
}

// TestMovesUnderLoad: several clients, several ways, both directions.
func TestMovesUnderLoad(t *testing.T) {
	s := startService(t, 2)
	clients := []*lease.Client{first(s.dial()), first(s.dial()), first(s.dial(client.WithoutRedis()))}
	ctx, cancel := context.WithCancel(patient(t))
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
		s.move("fast/", mode, i%4 < 2)
		if i%4 < 2 || mode == engine.Efficiency {
			eventually(t, "grants in the other mode", func() bool { return granted(mode) > before+10 })
			continue
		}
		_, err := s.leader().SetPolicy(patient(t), engine.Policy{Prefix: "fast/", Mode: mode, TTL: ttl}, 0, true) // do not wait for the longest TTL
		require.NoError(t, err)
		eventually(t, "grants in the other mode", func() bool { return granted(mode) > before+10 })
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

// gate lets connections through until it is shut.
type gate struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func newGate() *gate { return &gate{} }

func (g *gate) option() client.Option {
	return client.WithRedis(func(string) *redis.Options {
		return &redis.Options{Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.isCut {
				return nil, errCut
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			g.conns = append(g.conns, conn)
			return conn, err
		}}
	})
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isCut = true
	for _, conn := range g.conns {
		_ = conn.Close()
	}
}
