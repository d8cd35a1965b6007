package perlease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/perlease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

const ttl = 12 * time.Second

func TestSessionConforms(t *testing.T) {
	leasetest.Run(t, func(*testing.T) leasetest.Subject {
		m := newMemory()
		return leasetest.Subject{
			Backend:     func() engine.Backend { return m },
			Mode:        engine.Efficiency,
			TTL:         ttl,
			Clock:       leasetest.NewClock(),
			Sessionless: true,
			Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
		}
	}, leasetest.InBubble())
}

// fixture is a session on an engine in memory.
type fixture struct {
	*testing.T
	memory  *memory
	session *perlease.Session
	lost    map[engine.Nonce]error
}

func open(t *testing.T, m *memory) *fixture {
	f := &fixture{T: t, memory: m, lost: map[engine.Nonce]error{}}
	f.session = perlease.NewSession(m, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl, Clock: clock,
		Lost: func(nonce engine.Nonce, err error) { f.lost[nonce] = err }})
	return f
}

func request(nonce engine.Nonce, name fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Resources: []fencing.Resource{name}}
}

func (f *fixture) acquire(request engine.Request) engine.Held {
	f.Helper()
	grant, err := f.session.Acquire(f.Context(), request)
	require.NoError(f, err)
	return engine.Held{Name: grant.Name, Nonce: request.Nonce, Resources: request.Resources, Token: grant.Token, TTL: ttl,
		Session: f.memory.locks[request.Resources[0]].held.Session}
}

// What an unanswered acquire may have left is released before the attempt is repeated.
func TestRepeatedAttemptIsReleasedFirst(t *testing.T) {
	f := open(t, newMemory())
	f.memory.acquired = func(engine.Held) error { return engine.ErrUncertain }
	_, err := f.session.Acquire(t.Context(), request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUncertain)
	f.memory.acquired = nil
	again := request(1, "a")
	_, err = f.session.Acquire(t.Context(), again)
	require.ErrorIs(t, err, engine.ErrHeld)
	again.Repeated = true
	require.Equal(t, fencing.Token(2), f.acquire(again).Token)
	require.Empty(t, f.memory.released[0].Name)
}

func TestLossErrorOfTheEngineDoesNotEndTheSession(t *testing.T) {
	f := open(t, newMemory())
	f.memory.fault = engine.ErrTaken
	_, err := f.session.Acquire(t.Context(), request(1, "a"))
	require.NotErrorIs(t, err, engine.ErrLost)
	require.ErrorIs(t, err, engine.ErrUncertain)
}

func TestRenewReportsEachLease(t *testing.T) {
	f := open(t, newMemory())
	held := []engine.Held{f.acquire(request(1, "a")), f.acquire(request(2, "b")), f.acquire(request(3, "c"))}
	f.memory.renewing = func(held engine.Held) error {
		switch held.Nonce {
		case 2:
			return engine.ErrUnavailable
		case 3:
			return engine.ErrTaken
		}
		return nil
	}
	extended, err := f.session.Renew(t.Context(), held...)
	require.NoError(t, err)
	require.Equal(t, []engine.Nonce{1}, extended)
	require.Len(t, f.lost, 1)
	require.ErrorIs(t, f.lost[3], engine.ErrTaken)

	f.memory.fault = engine.ErrUnavailable
	_, err = f.session.Renew(t.Context(), held[:2]...)
	require.ErrorIs(t, err, engine.ErrUnavailable, "no lease was renewed")
	require.NotErrorIs(t, err, engine.ErrLost)
	extended, err = f.session.Renew(t.Context())
	require.NoError(t, err)
	require.Empty(t, extended)
}

func TestGrantAfterALongWaitIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		holder, waiter := open(t, m), open(t, m)
		holder.acquire(request(1, "a"))
		began := clock.Now()
		waiting := request(1, "a")
		waiting.Wait = true
		grant, err := waiter.session.Acquire(t.Context(), waiting)
		require.NoError(t, err)
		require.Equal(t, ttl, grant.Sent.Since(began), "the TTL starts with the renewal")

		m.renewing = func(engine.Held) error { return engine.ErrTaken }
		waiting.Nonce = 2
		_, err = holder.session.Acquire(t.Context(), waiting)
		require.ErrorIs(t, err, engine.ErrUnavailable, "a grant of unknown age is not used")
		require.Empty(t, m.locks, "and it is released")
	})
}

// A caller repeats a Close that failed, until the leases are released.
func TestFailedCloseIsRepeated(t *testing.T) {
	f := open(t, newMemory())
	held := f.acquire(request(1, "a"))
	f.memory.fault = engine.ErrUncertain
	require.ErrorIs(t, f.session.Close(t.Context(), held), engine.ErrUncertain)
	f.memory.fault = nil
	require.NoError(t, f.session.Close(context.Background(), held))
	require.Empty(t, f.memory.locks)
}

// limited is an engine that refuses releases at the limit of the rate.
type limited struct {
	*memory
	left atomic.Int32
}

func (l *limited) Release(ctx context.Context, held engine.Held) error {
	if l.left.Add(-1) < 0 {
		return engine.ErrLimit
	}
	return l.memory.Release(ctx, held)
}

// Repeated calls of Close release more leases than the rate allows at once.
func TestCloseGoesOnAtTheLimitOfTheRate(t *testing.T) {
	f := open(t, newMemory())
	l := &limited{memory: f.memory}
	f.session = perlease.NewSession(l, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl, Clock: clock})
	var held []engine.Held
	for n := range 4 {
		held = append(held, f.acquire(request(engine.Nonce(n+1), fencing.Resource(fmt.Sprint(n)))))
	}
	l.left.Store(2)
	require.ErrorIs(t, f.session.Close(t.Context(), held...), engine.ErrLimit)
	l.left.Store(2)
	require.NoError(t, f.session.Close(context.Background(), held...))
	require.Empty(t, f.memory.locks)
}

// Several goroutines may close a session at the same time.
func TestConcurrentClose(t *testing.T) {
	f := open(t, newMemory())
	var held []engine.Held
	for n := range 100 {
		held = append(held, f.acquire(request(engine.Nonce(n+1), fencing.Resource(fmt.Sprint(n)))))
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = f.session.Close(t.Context(), held...) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Empty(t, f.memory.locks)
}
