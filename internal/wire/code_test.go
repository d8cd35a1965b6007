package wire_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// TestClientsUseTheCodesOfTheService checks that the metrics of a client and those of the
// service have the same codes.
func TestClientsUseTheCodesOfTheService(t *testing.T) {
	for _, err := range []error{lease.ErrUncertain, lease.ErrForbidden, lease.ErrLimit, lease.ErrPermits,
		&engine.ModeError{}, lease.ErrHeld,
		lease.ErrNotHeld, lease.ErrExpired, lease.ErrTaken, lease.ErrLost, lease.ErrReleased, lease.ErrUnsupported,
		fencing.ErrInvalidResource,
		lease.ErrInvalid, lease.ErrUnavailable, context.Canceled, context.DeadlineExceeded} {
		require.Equal(t, wire.KindOf(err).Code, lease.Code(err), "%v", err)
		require.Equal(t, wire.KindOf(err).Code, lease.Code(wire.ToError(wire.FromError(err))), "over the network: %v", err)
	}
	require.Equal(t, wire.CodeInternal, lease.Code(errors.New("disk full")))
	require.Empty(t, lease.Code(nil))
	require.Equal(t, "closed", lease.Code(lease.ErrClosed))
}
