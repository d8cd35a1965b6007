package redisconn

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The timeout is for one batch, and batches are bounded: a server that answers many requests one by
// one is not cut off, however long that takes.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	e := newEchoServer(t)
	var batches atomic.Int32
	c := e.connect(t, Config{Timeout: time.Minute, Replied: func(time.Duration) { batches.Add(1) }})
	const requests = 1 + 2*maxBatch + 1 // the first one is sent by itself
	replies := make(chan Reply, requests)
	for i := range requests {
		r := NewCommand("ECHO", "x")
		r.Answer = func(_ int, r Reply) { replies <- r }
		c.Send(r)
		if i == 0 {
			<-e.received
		}
	}
	for range requests {
		e.reply <- struct{}{}
	}
	for range requests {
		require.NoError(t, (<-replies).Err)
	}
	require.EqualValues(t, 4, batches.Load())
}

// A server that stops answering is disconnected after the timeout. It may have executed the requests
// that it did not answer.
func TestSilentServerIsDisconnected(t *testing.T) {
	t.Parallel()
	e := newEchoServer(t)
	c := e.connect(t, Config{Timeout: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := c.Do(ctx, NewCommand("ECHO", "x"))
	require.ErrorIs(t, err, ErrDown)
	require.True(t, got.MaybeExecuted)
	require.Empty(t, c.Server())
	e.reply <- struct{}{}
}
