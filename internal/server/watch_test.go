package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	prefix := "w/"
	for name, request := range map[string]*pb.WatchRequest{"lock": {Resource: "one"}, "prefix": {Prefix: &prefix}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := request.Resource
			if lock == "" {
				lock = "w/lock"
			}
			ctx := testContext(t)
			api := pb.NewLeaseServiceClient(dial(t, s.Address()))
			first, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: lock, Ttl: "5m", Holder: "first"})
			require.NoError(t, err)
			next := watchEvents(t, s.Address(), request)
			e := next()
			require.Equal(t, "granted", e.Type)
			require.Equal(t, "first", e.Party.Holder)
			require.Equal(t, first.Token, e.Party.Token)
			require.Equal(t, "synced", next().Type)

			granted := make(chan *pb.AcquireResponse, 1)
			go func() {
				second, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: lock, Ttl: "10s", Wait: "5m", Holder: "second"})
				if err != nil {
					t.Error(err)
				}
				granted <- second
			}()
			e = next()
			require.Equal(t, "waiting", e.Type)
			require.EqualValues(t, 1, e.Place)
			_, err = api.Release(ctx, &pb.ReleaseRequest{Resource: lock, Token: first.Token})
			require.NoError(t, err)
			require.Equal(t, "released", next().Type)
			e = next()
			require.Equal(t, "granted", e.Type)
			require.Equal(t, (<-granted).Token, e.Party.Token)
			require.Equal(t, "expired", next().Type, "it is not renewed")

			third, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: lock, Ttl: "5m"})
			require.NoError(t, err)
			require.Equal(t, "granted", next().Type)
			_, err = api.Break(ctx, &pb.BreakRequest{Resource: lock, Token: third.Token})
			require.NoError(t, err)
			require.Equal(t, "broken", next().Type)
		})
	}
}
