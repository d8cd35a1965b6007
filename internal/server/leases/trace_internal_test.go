package leases

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/tracing"
)

// untraced is everything that a session stream does for tracing when it acquires a lock.
func untraced(s *Service, ctx context.Context, op *pb.Operation) {
	call := s.traceOperation(ctx, op)
	call.Step(tracing.Commit)
	call.Step(tracing.Queue)
	_ = call.WithRounds(ctx)
	call.End(1, "correctness", nil)
}

var acquireOperation = &pb.Operation{Session: make([]byte, 16), Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Resources: []string{"a"}}}}

// Without a collector, tracing allocates nothing.
func TestTracingCostsNothingWhenOff(t *testing.T) {
	s, ctx := &Service{}, context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() { untraced(s, ctx, acquireOperation) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { s.traceAcquire(ctx, &pb.AcquireRequest{Resource: "a"}).End(0, "", nil) }))
}

func BenchmarkTracingOff(b *testing.B) {
	s, ctx := &Service{}, context.Background()
	b.ReportAllocs()
	for b.Loop() {
		untraced(s, ctx, acquireOperation)
	}
}
