package lease_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// The refusals of gates have codes, so that metrics of work under a lease can tell them from
// bugs.
func TestCodeOfRefusedWrites(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"":                 nil,
		"stale":            &fencing.StaleError{Resource: "a", Token: 1, Mark: 2},
		"no-token":         fencing.ErrNoToken,
		"jump":             &fencing.JumpError{Resource: "a", Token: 9, Mark: 2, MaxJump: 3},
		"invalid-token":    fencing.ErrUnsigned,
		"invalid-resource": fencing.ErrInvalidResource,
		"internal":         errors.New("disk is full"),
	} {
		require.Equal(t, want, lease.Code(err))
		if err != nil {
			require.Equal(t, want, lease.Code(fmt.Errorf("write: %w", err)))
		}
	}
	require.Equal(t, "stale", lease.Code(&fencing.StaleError{Resource: "a", Mark: 2}),
		"a write without a token to a fenced resource")
	require.Equal(t, "uncertain", lease.Code(fmt.Errorf("%w: %w", fencing.ErrStale, lease.ErrUncertain)))
}
