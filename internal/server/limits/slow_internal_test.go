package limits

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/leased-project/leased/lease/engine"
)

// unread is a stream that blocks for some time in each SendMsg.
type unread struct {
	grpc.ServerStream
	ctx   context.Context
	block time.Duration
}

func (s *unread) Context() context.Context { return s.ctx }

func (s *unread) SendMsg(any) error {
	select {
	case <-time.After(s.block):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// A stream whose client takes longer than SendTimeout for a message is ended. One whose
// client is slow but reads is not.
func TestSlowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := NewAccounts(Default(), engine.MonotonicClock())
		serve := func(block time.Duration) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel() // as gRPC does when the interceptor has returned
			return accounts.StreamInterceptor(nil, &unread{ctx: ctx, block: block}, &grpc.StreamServerInfo{FullMethod: "x"},
				func(_ any, stream grpc.ServerStream) error {
					for range 10 {
						time.Sleep(time.Hour) // there is nothing to send
						if err := stream.SendMsg(nil); err != nil {
							return err
						}
					}
					return nil
				})
		}
		require.NoError(t, serve(DefaultSendTimeout-time.Second))
		err := serve(DefaultSendTimeout + time.Hour)
		require.ErrorIs(t, err, ErrSlow)
		require.ErrorIs(t, err, engine.ErrLimit)
		synctest.Wait()
		require.Zero(t, accounts.Of(context.Background()).streams.Load())
	})
}
