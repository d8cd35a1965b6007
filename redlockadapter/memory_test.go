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

// A held lock takes little memory on a node. It is measured while nobody is
// connected: the buffers of connections are no part of it.
func TestMemoryOfAHeldLock(t *testing.T) {
	t.Parallel()
	const maxBytes, count = 250, 10_000
	f := startFleet(t, 1).init(t)
	server := f.client(t, 0)
	hold := func(names string, count int) {
		b, ctx, session := f.backend(t), patient(t), engine.NewSessionID()
		room, done := make(chan struct{}, 64), sync.WaitGroup{}
		for i := range count {
			room <- struct{}{}
			done.Go(func() {
				defer func() { <-room }()
				r := request(engine.Nonce(i+1), fencing.Resource(fmt.Sprint(names, i)))
				r.Holder = "worker-1"
				if _, _, err := b.Acquire(ctx, session, time.Minute, r); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		require.NoError(t, b.Close(ctx)) // what was acquired for others stays
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
	t.Logf("%d bytes a held lock", bytes)
	require.LessOrEqual(t, bytes, maxBytes)
	keys, err := server.DBSize(patient(t)).Result()
	require.NoError(t, err)
	require.Greater(t, keys, int64(count))
}
