package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// nowhere is a backend that nobody asks.
type nowhere struct{}

func (nowhere) Open(context.Context, engine.SessionConfig) (engine.Session, error) {
	return nil, engine.ErrUnavailable
}

func (nowhere) Inspect(context.Context, fencing.Resource) (engine.Status, error) {
	return engine.Status{}, engine.ErrUnavailable
}

func (nowhere) Watch(context.Context, fencing.Resource, func(engine.Status)) error {
	return engine.ErrUnavailable
}

func (nowhere) Break(context.Context, fencing.Resource, fencing.Token) error {
	return engine.ErrUnavailable
}

// Who chooses no clock has the one that goes on in suspend: by the other a
// machine that slept would believe in leases that others hold since.
func TestAClientCountsSuspendUnlessToldOtherwise(t *testing.T) {
	c, err := New(nowhere{})
	require.NoError(t, err)
	require.Equal(t, engine.SystemClock(), c.clock)
	require.NotEqual(t, engine.MonotonicClock(), c.clock)
	c, err = New(nowhere{}, WithClock(engine.MonotonicClock()))
	require.NoError(t, err)
	require.Equal(t, engine.MonotonicClock(), c.clock)
}
