package calls

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
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
		two := limits.Default()
		two.StreamsPerUser = 2
		accounts := limits.NewAccounts(two, engine.MonotonicClock())
		log, err := audit.Open(audit.Config{})
		require.NoError(t, err)
		chain := &Chain{Router: &routing.Router{}, Limits: accounts, Audit: log, Metrics: metrics.New("", "")}
		serve := func(block time.Duration) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel() // as gRPC does when the interceptor has returned
			return chain.StreamInterceptor(nil, &unread{ctx: ctx, block: block},
				&grpc.StreamServerInfo{FullMethod: pb.LeaseService_Session_FullMethodName},
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
		require.NoError(t, serve(limits.DefaultSendTimeout-time.Second))
		err = serve(limits.DefaultSendTimeout + time.Hour)
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrLimit)
		require.ErrorContains(t, err, "limit-send-timeout")
		synctest.Wait()
		for range 2 {
			_, err = accounts.Of(context.Background()).OpenStream()
			require.NoError(t, err, "the streams still count")
		}
	})
}
