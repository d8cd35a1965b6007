package memgate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/memgate"
)

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var gate *memgate.Gate[string]
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if gate == nil {
				gate = memgate.New[string](rule)
			}
			put := func(_ context.Context, value *string, _ fencing.Resource, text string) error {
				*value = text
				return nil
			}
			get := func(ctx context.Context, resource fencing.Resource) (string, error) {
				value, _, err := gate.Get(ctx, resource)
				return value, err
			}
			return gatetest.Adapt(gate, put, get)
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	gate := memgate.New[int](fencing.Rule{})
	ctx, cancel := context.WithCancel(t.Context())
	err := gate.Do(t.Context(), "orders", 1, func(*int) error {
		cancel()
		return gate.Enter(ctx, "orders", 2) // would deadlock with a mutex
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFailedWriteLeavesTheValue(t *testing.T) {
	gate := memgate.New[int](fencing.Rule{})
	require.NoError(t, gate.Do(t.Context(), "orders", 1, func(n *int) error { *n = 7; return nil }))
	require.ErrorIs(t, gate.Do(t.Context(), "orders", 2, func(n *int) error {
		*n = 8
		return context.Canceled
	}), context.Canceled)
	value, mark, err := gate.Get(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, 7, value)
	require.Equal(t, fencing.Token(1), mark)
}
