package leasetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// session is a session of the engine, without a Client. It repeats calls that are
// unavailable or uncertain, with the same nonce, as package lease does: the service may
// change its leader during a test. It passes the leases that have names.
type session struct {
	f      *fixture
	config engine.SessionConfig
	engine engine.Session
	held   map[engine.Nonce]engine.Held
}

// session opens a session.
func (f *fixture) session(b engine.Backend) *session {
	f.Helper()
	s := &session{f: f, held: map[engine.Nonce]engine.Held{},
		config: engine.SessionConfig{ID: engine.NewSessionID(), TTL: f.TTL, Mode: f.Mode, Clock: f.Clock}}
	require.NoError(f, f.retry(func() (err error) { s.engine, err = b.Open(f.ctx, s.config); return err }))
	f.Cleanup(func() { _ = s.engine.Close(context.Background(), s.named()...) })
	return s
}

// named returns the leases of an engine without sessions.
func (s *session) named() []engine.Held {
	return slices.Collect(maps.Values(s.held))
}

func (s *session) acquire(request engine.Request) (grant engine.Grant, err error) {
	err = s.f.retry(func() error {
		grant, err = s.engine.Acquire(s.f.ctx, request)
		request.Repeated = true
		return err
	})
	if grant.Name != "" {
		s.held[request.Nonce] = engine.Held{Name: grant.Name, Session: s.config.ID, Nonce: request.Nonce,
			Resources: request.Resources, Token: grant.Token, TTL: s.config.TTL, Holder: request.Holder, User: grant.User}
	}
	return grant, err
}

func (s *session) renew() (extended []engine.Nonce, err error) {
	err = s.f.retry(func() error { extended, err = s.engine.Renew(s.f.ctx, s.named()...); return err })
	return extended, err
}

func (s *session) release(nonce engine.Nonce) error {
	held, named := s.held[nonce]
	if !named {
		held = engine.Held{Session: s.config.ID, Nonce: nonce, Resources: s.f.request(nonce).Resources, TTL: s.config.TTL}
	}
	err := s.f.retry(func() error { return s.engine.Release(s.f.ctx, held) })
	if err == nil {
		delete(s.held, nonce)
	}
	return err
}

func (s *session) close() error {
	return s.f.retry(func() error { return s.engine.Close(s.f.ctx, s.named()...) })
}

// retryPause is the time before a call is repeated.
const retryPause = 20 * time.Millisecond

// unanswered reports whether a call was unavailable or uncertain, as calls are while the leader changes.
func unanswered(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain)
}

// retry repeats a call while it is unanswered.
func (f *fixture) retry(call func() error) error {
	for {
		err := call()
		if f.ctx.Err() != nil || !unanswered(err) {
			return err
		}
		_ = engine.Sleep(f.ctx, retryPause)
	}
}

func (f *fixture) request(nonce engine.Nonce) engine.Request {
	return engine.Request{Nonce: nonce, Resources: []fencing.Resource{f.name("a")}, Holder: "suite"}
}

var sessionTests = []conformance{
	{"an attempt has one outcome", func(f *fixture) {
		if f.Sessionless {
			f.Skip("the engine keeps no attempts")
		}
		s := f.session(f.Backend())
		first, err := s.acquire(f.request(1))
		require.NoError(f, err)
		again, err := s.acquire(f.request(1))
		require.NoError(f, err)
		require.Equal(f, first.Token, again.Token, "a repeated attempt has one grant")
		_, err = s.acquire(f.request(2))
		require.ErrorIs(f, err, engine.ErrHeld)
		require.NoError(f, s.release(1))
		third, err := s.acquire(f.request(3))
		require.NoError(f, err)
		require.True(f, third.Token.Newer(first.Token))
	}},
	{"a grant has a time", func(f *fixture) {
		s := f.session(f.Backend())
		grant, err := s.acquire(f.request(1))
		require.NoError(f, err)
		require.False(f, grant.Sent.IsZero())
		require.GreaterOrEqual(f, f.Clock.Now().Since(grant.Sent), 0*f.TTL, "the time is not in the future")
	}},
	{"a late acquire after its release", func(f *fixture) {
		if f.Sessionless {
			f.Skip("the engine keeps no attempts")
		}
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		require.NoError(f, s.release(1), "released before the acquire")
		_, err := s.acquire(f.request(1))
		require.Error(f, err, "a late copy of an ended attempt must not be granted")

		grant, err := s.acquire(f.request(2))
		require.NoError(f, err)
		require.NoError(f, s.release(2))
		_, err = s.acquire(f.request(2))
		require.Error(f, err)
		next, err := other.acquire(f.request(1))
		require.NoError(f, err, "the lock is free")
		require.True(f, next.Token.Newer(grant.Token))
	}},
	{"release names the attempt", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		_, err := s.acquire(f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.release(1))
		_, err = other.acquire(f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.release(1), "released twice")
		_, err = s.acquire(f.request(2))
		require.ErrorIs(f, err, engine.ErrHeld, "a second release must not free another session's lock")
	}},
	{"a released attempt is not renewed", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		_, err := s.acquire(f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.release(1))
		_, err = s.renew()
		require.NoError(f, err)
		next, err := other.acquire(f.request(1))
		require.NoError(f, err, "the renewal must not take the lock back")
		_, err = s.renew()
		require.NoError(f, err)
		var status engine.Status
		require.NoError(f, f.retry(func() error { status, err = b.Inspect(f.ctx, f.name("a")); return err }))
		require.Len(f, status.Holders, 1)
		require.Equal(f, next.Token, status.Holders[0].Token)
	}},
	{"a renewal names what it extended", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		extended, err := s.renew()
		require.NoError(f, err)
		require.Empty(f, extended)
		for nonce := range engine.Nonce(3) {
			request := f.request(nonce + 1)
			request.Resources[0] += fencing.Resource(rune('a' + nonce))
			_, err := s.acquire(request)
			require.NoError(f, err)
		}
		_, err = other.acquire(f.request(4))
		require.NoError(f, err)
		_, err = s.acquire(f.request(5))
		require.ErrorIs(f, err, engine.ErrHeld)
		require.NoError(f, s.release(2))
		extended, err = s.renew()
		require.NoError(f, err)
		require.ElementsMatch(f, []engine.Nonce{1, 3}, extended)
	}},
	{"close frees a session", func(f *fixture) {
		b := f.Backend()
		s, other := f.session(b), f.session(b)
		_, err := s.acquire(f.request(1))
		require.NoError(f, err)
		require.NoError(f, s.close())
		_, err = other.acquire(f.request(1))
		require.NoError(f, err)
	}},
	{"a session that is not renewed ends", func(f *fixture) {
		s := f.session(f.Backend())
		_, err := s.acquire(f.request(1))
		require.NoError(f, err)
		next := f.acquire(f.client(), f.name("a"))
		require.True(f, next.Token().Valid())
		if _, err := s.renew(); err != nil {
			require.ErrorIs(f, err, engine.ErrLost)
		}
		f.requireHeld(f.client(), f.name("a"))
	}},
}
