package calls

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/tracing"
)

// trace is everything that a session stream does for tracing when it acquires a lock.
func trace(c *Chain, ctx context.Context, op *pb.Operation) {
	call := c.Trace(ctx, op)
	call.Step(tracing.Commit)
	call.Step(tracing.Queue)
	_ = call.WithRounds(ctx)
	call.End(1, "correctness", nil)
}

var acquireOperation = &pb.Operation{Session: make([]byte, 16),
	Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Resources: []string{"a"}}}}

// Without a collector, tracing allocates nothing.
func TestTracingCostsNothingWhenOff(t *testing.T) {
	c, ctx := &Chain{}, context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() { trace(c, ctx, acquireOperation) }))
}

// Calls on locks that the user may not acquire are not traced: their names are any text.
func TestCallsWithoutRightsAreNotTraced(t *testing.T) {
	collector := httptest.NewServer(http.NotFoundHandler())
	defer collector.Close()
	tracer, err := tracing.Open(tracing.Config{Endpoint: collector.URL, Sample: 1, Member: "n1",
		Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer tracer.Close()
	c, ctx := &Chain{Tracer: tracer},
		as(t, auth.User{Name: "ann", Rules: auth.Rules{{Right: auth.Acquire, Pattern: "jobs/*"}}})
	for name, traced := range map[string]bool{"jobs/7": true, "payroll": false} {
		streamAcquire := &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Resources: []string{name}}}}
		streamRelease := &pb.Operation{Call: &pb.Operation_Release{
			Release: &pb.ReleaseCall{Lease: &pb.HeldLease{Resources: []string{name}}}}}
		for what, call := range map[string]*tracing.Call{
			"acquire":        c.trace(ctx, acquire, "", &pb.AcquireRequest{Resource: name}),
			"acquire set":    c.trace(ctx, acquire, "", &pb.AcquireRequest{Resources: []string{"jobs/1", name}}),
			"release":        c.trace(ctx, release, "", &pb.ReleaseRequest{Resource: name}),
			"stream acquire": c.Trace(ctx, streamAcquire),
			"stream release": c.Trace(ctx, streamRelease),
		} {
			require.Equal(t, traced, call != nil, "%s of %s", what, name)
			call.End(0, "", nil)
		}
	}
}

func BenchmarkTracingOff(b *testing.B) {
	c, ctx := &Chain{}, context.Background()
	b.ReportAllocs()
	for b.Loop() {
		trace(c, ctx, acquireOperation)
	}
}

// BenchmarkTracingOn exports the spans to a collector that discards them. With sample 0
// calls without a traceparent are not traced.
func BenchmarkTracingOn(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer collector.Close()
	for _, sample := range []float64{0, 1} {
		b.Run(fmt.Sprintf("sample=%v", sample), func(b *testing.B) {
			tracer, err := tracing.Open(tracing.Config{Endpoint: collector.URL, Sample: sample, Member: "n1",
				Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			defer tracer.Close()
			c, ctx := &Chain{Tracer: tracer}, context.Background()
			b.ReportAllocs()
			for b.Loop() {
				trace(c, ctx, acquireOperation)
			}
		})
	}
}
