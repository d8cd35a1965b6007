package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// nowhere is a backend that nobody asks.
type nowhere struct{}

func (nowhere) Open(context.Context, SessionConfig) (Session, error) { return nil, ErrUnavailable }

func (nowhere) Inspect(context.Context, fencing.Resource) (Status, error) {
	return Status{}, ErrUnavailable
}

func (nowhere) Watch(context.Context, fencing.Resource, func(Status)) error { return ErrUnavailable }

func (nowhere) Break(context.Context, fencing.Resource, fencing.Token) error { return ErrUnavailable }

// Who chooses no clock has the one that goes on in suspend: by the other a
// machine that slept would believe in leases that others hold since.
func TestAClientCountsSuspendUnlessToldOtherwise(t *testing.T) {
	c, err := New(nowhere{})
	require.NoError(t, err)
	require.Equal(t, SystemClock(), c.clock)
	require.NotEqual(t, MonotonicClock(), c.clock)
	c, err = New(nowhere{}, WithClock(MonotonicClock()))
	require.NoError(t, err)
	require.Equal(t, MonotonicClock(), c.clock)
}
