package server_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// BenchmarkRemote measures what a client gets from a member in another process:
// acquire and release of a lock of its own for each caller, over the session
// stream and with unary calls. One operation is an acquire or a release.
//
//	go test -run '^$' -bench Remote ./internal/server
func BenchmarkRemote(b *testing.B) {
	c := startCluster(b, 1)
	address := c.members[0].spec.API
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("stream/callers=%d", callers), func(b *testing.B) {
			session, err := client(b, []string{address}).Open(patient(b), lease.SessionConfig{ID: lease.NewSessionID(), TTL: lease.MaxTTL})
			require.NoError(b, err)
			measure(b, callers, func(ctx context.Context, nonce lease.Nonce, name string) error {
				if _, err := session.Acquire(ctx, lease.Request{Nonce: nonce, Resources: []fencing.Resource{fencing.Resource(name)}}); err != nil {
					return err
				}
				return session.Release(ctx, nonce)
			})
		})
		b.Run(fmt.Sprintf("unary/callers=%d", callers), func(b *testing.B) {
			api := pb.NewLeaseServiceClient(dial(b, address))
			session, err := api.OpenSession(patient(b), &pb.OpenSessionRequest{Ttl: lease.MaxTTL.String()})
			require.NoError(b, err)
			measure(b, callers, func(ctx context.Context, nonce lease.Nonce, name string) error {
				if _, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: name, SessionId: session.SessionId, Nonce: uint64(nonce)}); err != nil {
					return err
				}
				_, err := api.Release(ctx, &pb.ReleaseRequest{SessionId: session.SessionId, Nonce: uint64(nonce)})
				return err
			})
		})
	}
}

// measure has so many callers make b.N pairs of operations together.
func measure(b *testing.B, callers int, pair func(ctx context.Context, nonce lease.Nonce, name string) error) {
	b.Helper()
	var next atomic.Int64
	var work sync.WaitGroup
	b.ResetTimer()
	for i := range callers {
		work.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if err := pair(context.Background(), lease.Nonce(n), fmt.Sprint("bench/", i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(b.Elapsed().Microseconds())*float64(callers)/float64(2*b.N), "us/op")
}
