package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// retryingSession repeats calls that are unavailable or uncertain, with the same nonce,
// as package lease does. The service may change its leader during a test.
type retryingSession struct {
	engine.Session
	f *fixture
}

func (s retryingSession) Acquire(ctx context.Context, request engine.Request) (grant engine.Grant, err error) {
	err = s.f.retry(func() error { grant, err = s.Session.Acquire(ctx, request); return err })
	return grant, err
}

func (s retryingSession) Renew(ctx context.Context) (extended []engine.Nonce, err error) {
	err = s.f.retry(func() error { extended, err = s.Session.Renew(ctx); return err })
	return extended, err
}

func (s retryingSession) Release(ctx context.Context, nonce engine.Nonce) error {
	return s.f.retry(func() error { return s.Session.Release(ctx, nonce) })
}

func (s retryingSession) Close(ctx context.Context) error {
	return s.f.retry(func() error { return s.Session.Close(ctx) })
}

// retry repeats a call while it is unavailable or uncertain.
func (f *fixture) retry(call func() error) error {
	for {
		err := call()
		if f.ctx.Err() != nil || !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUncertain) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-f.ctx.Done():
			return err
		}
	}
}

// session opens a session of the engine, without a Client.
func (f *fixture) session(b engine.Backend) engine.Session {
	f.Helper()
	config := engine.SessionConfig{ID: engine.NewSessionID(), TTL: f.TTL, Clock: f.Clock}
	var s engine.Session
	require.NoError(f, f.retry(func() (err error) { s, err = b.Open(f.ctx, config); return err }))
	f.Cleanup(func() { _ = s.Close(context.Background()) })
	return retryingSession{s, f}
}

func (f *fixture) request(nonce engine.Nonce) engine.Request {
	return engine.Request{Nonce: nonce, Resources: []fencing.Resource{f.name("a")}, Holder: "suite"}
}

var sessionTests = []conformance{
	{"an attempt has one outcome", func(f *fixture) {
		s := f.session(f.Backend())
		first, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		again, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.Equal(f, first.Token, again.Token, "a repeated attempt has one grant")
		_, err = s.Acquire(f.ctx, f.request(2))
		require.ErrorIs(f, err, engine.ErrHeld)
		require.NoError(f, s.Release(f.ctx, 1))
		third, err := s.Acquire(f.ctx, f.request(3))
		require.NoError(f, err)
		require.True(f, third.Token.Newer(first.Token))
	}},
	{"a grant has a time", func(f *fixture) {
		s := f.session(f.Backend())
		grant, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.False(f, grant.Sent.IsZero())
		require.GreaterOrEqual(f, f.Clock.Now().Since(grant.Sent), 0*f.TTL, "the time is not in the future")
	}},
	{"a late acquire after its release", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		require.NoError(f, s.Release(f.ctx, 1), "released before the acquire")
		_, err := s.Acquire(f.ctx, f.request(1))
		require.Error(f, err, "a late copy of an ended attempt must not be granted")

		grant, err := s.Acquire(f.ctx, f.request(2))
		require.NoError(f, err)
		require.NoError(f, s.Release(f.ctx, 2))
		_, err = s.Acquire(f.ctx, f.request(2))
		require.Error(f, err)
		next, err := other.Acquire(f.ctx, f.request(1))
		require.NoError(f, err, "the lock is free")
		require.True(f, next.Token.Newer(grant.Token))
	}},
	{"release names the attempt", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		_, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.Release(f.ctx, 1))
		_, err = other.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.Release(f.ctx, 1), "released twice")
		_, err = s.Acquire(f.ctx, f.request(2))
		require.ErrorIs(f, err, engine.ErrHeld, "a second release must not free another session's lock")
	}},
	{"a released attempt is not renewed", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		_, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.Release(f.ctx, 1))
		_, err = s.Renew(f.ctx)
		require.NoError(f, err)
		next, err := other.Acquire(f.ctx, f.request(1))
		require.NoError(f, err, "the renewal must not take the lock back")
		_, err = s.Renew(f.ctx)
		require.NoError(f, err)
		var status engine.Status
		require.NoError(f, f.retry(func() error { status, err = b.Inspect(f.ctx, f.name("a")); return err }))
		require.Len(f, status.Holders, 1)
		require.Equal(f, next.Token, status.Holders[0].Token)
	}},
	{"a renewal names what it extended", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		extended, err := s.Renew(f.ctx)
		require.NoError(f, err)
		require.Empty(f, extended)
		for nonce := range engine.Nonce(3) {
			request := f.request(nonce + 1)
			request.Resources[0] += fencing.Resource(rune('a' + nonce))
			_, err := s.Acquire(f.ctx, request)
			require.NoError(f, err)
		}
		_, err = other.Acquire(f.ctx, f.request(4))
		require.NoError(f, err)
		_, err = s.Acquire(f.ctx, f.request(5))
		require.ErrorIs(f, err, engine.ErrHeld)
		require.NoError(f, s.Release(f.ctx, 2))
		extended, err = s.Renew(f.ctx)
		require.NoError(f, err)
		require.ElementsMatch(f, []engine.Nonce{1, 3}, extended)
	}},
	{"close frees a session", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		_, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.Close(f.ctx))
		_, err = other.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
	}},
	{"a session that is not renewed ends", func(f *fixture) {
		s := f.session(f.Backend())
		_, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		next := f.acquire(f.client(), f.name("a"))
		require.True(f, next.Token().Valid())
		if _, err := s.Renew(f.ctx); err != nil {
			require.ErrorIs(f, err, engine.ErrLost)
		}
		f.requireHeld(f.client(), f.name("a"))
	}},
}
