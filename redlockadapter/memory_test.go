package redlockadapter_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// maxBytes is what a held lock may take on a node.
const maxBytes = 250

// A held lock takes little memory on a node.
func TestMemoryOfAHeldLock(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1).init(t)
	b := f.backend(t)
	c, err := lease.New(b, lease.WithPolicies(lease.Policy{TTL: time.Minute}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	warm, err := c.Acquire(patient(t), "own/warm")
	require.NoError(t, err)
	require.NoError(t, warm.Release(patient(t)))
	server := f.client(t, 0)
	used := func() int {
		n, err := strconv.Atoi(infoField(t, server, "used_memory"))
		require.NoError(t, err)
		return n
	}
	const count = 10_000
	before := used()
	room, done := make(chan struct{}, 128), sync.WaitGroup{}
	for i := range count {
		room <- struct{}{}
		done.Go(func() {
			defer func() { <-room }()
			if _, err := c.Acquire(patient(t), fencing.Resource(fmt.Sprint("own/", i)), lease.WithHolder("worker-1")); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	bytes := 0
	waitFor(t, func() bool { // until the buffers of connections have shrunk
		bytes = (used() - before) / count
		return bytes <= maxBytes
	}, "a held lock takes more than %d bytes", maxBytes)
	t.Logf("%d bytes a held lock", bytes)
	require.Equal(t, count, len(mustList(t, b)))
}

func mustList(t *testing.T, b interface {
	List(context.Context, string, fencing.Resource, int) ([]lease.Status, error)
}) []lease.Status {
	t.Helper()
	list, err := b.List(patient(t), "own/", "", 1<<20)
	require.NoError(t, err)
	return list
}
