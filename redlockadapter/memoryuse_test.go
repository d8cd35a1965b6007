package redlockadapter_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A held lock uses little memory on a node. It is measured without connections, whose
// buffers do not count.
func TestMemoryPerLock(t *testing.T) {
	t.Parallel()
	const maxBytes, count = 250, 10_000
	f := startFleet(t, 1).init(t)
	server := f.client(t, 0)
	hold := func(names string, count int) {
		b, ctx, session := f.backend(t), testContext(t), engine.NewSessionID()
		slots, done := make(chan struct{}, 64), sync.WaitGroup{}
		for i := range count {
			slots <- struct{}{}
			done.Go(func() {
				defer func() { <-slots }()
				r := request(engine.Nonce(i+1), fencing.Resource(fmt.Sprint(names, i)))
				r.Holder = "worker-1"
				if _, err := b.Acquire(ctx, session, time.Minute, r); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		require.NoError(t, b.Close(ctx)) // the leases stay: they belong to no session of b
		waitFor(t, func() bool { return infoField(t, server, "connected_clients") == "1" })
	}
	used := func() int {
		n, err := strconv.Atoi(infoField(t, server, "used_memory"))
		require.NoError(t, err)
		return n
	}
	hold("warm/", 1)
	before := used()
	hold("own/", count)
	bytes := (used() - before) / count
	t.Logf("%d bytes per held lock", bytes)
	require.LessOrEqual(t, bytes, maxBytes)
	keys, err := server.DBSize(testContext(t)).Result()
	require.NoError(t, err)
	require.Greater(t, keys, int64(count))
}
