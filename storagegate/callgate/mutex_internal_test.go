package callgate

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func TestResourceMutexFreesIdleResources(t *testing.T) {
	var mutex resourceMutex
	for i := range 1000 {
		resource := fencing.Resource(fmt.Sprint(i))
		unlock, err := mutex.Lock(t.Context(), resource)
		require.NoError(t, err)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = mutex.Lock(cancelled, resource)
		require.ErrorIs(t, err, context.Canceled)
		unlock()
	}
	require.Empty(t, mutex.locks)
}
