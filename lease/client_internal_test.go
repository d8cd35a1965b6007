package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// unavailable is a backend that cannot be reached.
type unavailable struct{}

func (unavailable) Open(context.Context, engine.SessionConfig) (engine.Session, error) {
	return nil, engine.ErrUnavailable
}

func (unavailable) Inspect(context.Context, fencing.Resource) (engine.Status, error) {
	return engine.Status{}, engine.ErrUnavailable
}

func (unavailable) Watch(context.Context, fencing.Resource, func(engine.Status)) error {
	return engine.ErrUnavailable
}

func (unavailable) Break(context.Context, fencing.Resource, fencing.Token) error {
	return engine.ErrUnavailable
}

// TestDefaultClockCountsSuspend checks the default clock: with a clock that stops in
// suspend a client would use leases that others hold by then.
func TestDefaultClockCountsSuspend(t *testing.T) {
	c, err := New(unavailable{})
	require.NoError(t, err)
	require.Equal(t, engine.SystemClock(), c.clock)
	require.NotEqual(t, engine.MonotonicClock(), c.clock)
	c, err = New(unavailable{}, WithClock(engine.MonotonicClock()))
	require.NoError(t, err)
	require.Equal(t, engine.MonotonicClock(), c.clock)
}
