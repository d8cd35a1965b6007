package engine_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// Each makes every call once, a limited number at a time, and returns the errors in order.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := errors.New("odd")
		var running, most, calls atomic.Int64
		errs := engine.Each(100, 8, func(i int) error {
			calls.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			if i%2 == 1 {
				return odd
			}
			return nil
		})
		require.EqualValues(t, 100, calls.Load())
		require.EqualValues(t, 8, most.Load())
		require.Len(t, errs, 100)
		for i, err := range errs {
			require.Equal(t, i%2 == 1, errors.Is(err, odd))
		}
	})
	require.Empty(t, engine.Each(0, 1, nil))
}
