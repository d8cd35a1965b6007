package perlease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// nothing is an Engine whose locks are always free.
type nothing struct{}

func (nothing) Acquire(_ context.Context, id engine.SessionID, ttl time.Duration, r engine.Request) (engine.Held, error) {
	return engine.Held{Name: "x", Session: id, Nonce: r.Nonce, Resources: r.Resources, Token: 1, TTL: ttl}, nil
}
func (nothing) Renew(_ context.Context, leases []engine.Held) []error {
	return make([]error, len(leases))
}
func (nothing) Release(context.Context, engine.Held) error { return nil }

// A session with a long TTL does not grow with the attempts that it has released, and
// refuses late copies of all of them, but not a lease that is held for long.
func TestEndedAttemptsAreBounded(t *testing.T) {
	ctx := t.Context()
	s := NewSession(nothing{}, engine.SessionConfig{ID: engine.NewSessionID(), TTL: engine.MaxTTL})
	request := func(nonce engine.Nonce) engine.Request {
		return engine.Request{Nonce: nonce, Resources: []fencing.Resource{"a"}}
	}
	_, err := s.Acquire(ctx, request(1))
	require.NoError(t, err)
	const last = 5 * maxEnded
	for nonce := engine.Nonce(2); nonce <= last; nonce++ {
		require.NoError(t, s.Release(ctx, nonce))
	}
	require.LessOrEqual(t, len(s.ended.single), maxEnded)
	for nonce := engine.Nonce(2); nonce <= last; nonce++ {
		_, err := s.Acquire(ctx, request(nonce))
		require.ErrorIs(t, err, engine.ErrHeld)
	}
	_, err = s.Acquire(ctx, request(1))
	require.NoError(t, err, "it is held")
	require.NoError(t, s.Release(ctx, 1))
	_, err = s.Acquire(ctx, request(1))
	require.ErrorIs(t, err, engine.ErrHeld)
	_, err = s.Acquire(ctx, request(last+1))
	require.NoError(t, err)
}
