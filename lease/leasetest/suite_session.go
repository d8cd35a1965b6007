package leasetest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// session opens a session of the engine, without a Client.
func (f *fixture) session(b engine.Backend) engine.Session {
	f.Helper()
	clock := f.Clock
	if clock == nil {
		clock = engine.SystemClock()
	}
	s, err := b.Open(f.ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: f.TTL, Clock: clock})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
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
		clock := f.Clock
		if clock == nil {
			clock = engine.SystemClock()
		}
		s := f.session(f.Backend())
		grant, err := s.Acquire(f.ctx, f.request(1))
		require.NoError(f, err)
		require.False(f, grant.Sent.IsZero())
		require.GreaterOrEqual(f, clock.Now().Since(grant.Sent), 0*f.TTL, "the time is not in the future")
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
		status, err := b.Inspect(f.ctx, f.name("a"))
		require.NoError(f, err)
		require.Len(f, status.Holders, 1)
		require.Equal(f, next.Token, status.Holders[0].Token)
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
