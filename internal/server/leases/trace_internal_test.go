package leases

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
	"github.com/leased-project/leased/lease/remote/secret"
)

// trace is everything that a session stream does for tracing when it acquires a lock.
func trace(s *Service, ctx context.Context, op *pb.Operation) {
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
	require.Zero(t, testing.AllocsPerRun(1000, func() { trace(s, ctx, acquireOperation) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { s.traceAcquire(ctx, &pb.AcquireRequest{Resource: "a"}).End(0, "", nil) }))
}

// Calls on locks that the user may not acquire are not traced: their names are any text.
func TestCallsWithoutRightsAreNotTraced(t *testing.T) {
	collector := httptest.NewServer(http.NotFoundHandler())
	defer collector.Close()
	tracer, err := tracing.Open(tracing.Config{Endpoint: collector.URL, Sample: 1, Member: "n1", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer tracer.Close()
	rule, err := auth.ParseRule("acquire:jobs/*")
	require.NoError(t, err)
	text := secret.New()
	r := httptest.NewRequest(http.MethodPost, "/v1/acquire", nil)
	r.Header.Set("Authorization", secret.Header(text))
	r, done, err := auth.NewUsers([]auth.User{{Name: "ann", Hashes: []secret.Hash{secret.HashOf(text)}, Rules: auth.Rules{rule}}}).AuthenticateHTTP(r)
	require.NoError(t, err)
	defer done()
	s, ctx := &Service{Tracer: tracer}, r.Context()
	for name, traced := range map[string]bool{"jobs/7": true, "payroll": false} {
		for what, call := range map[string]*tracing.Call{
			"acquire":        s.traceAcquire(ctx, &pb.AcquireRequest{Resource: name}),
			"acquire set":    s.traceAcquire(ctx, &pb.AcquireRequest{Resources: []string{"jobs/1", name}}),
			"release":        s.traceRelease(ctx, &pb.ReleaseRequest{Resource: name}),
			"stream acquire": s.traceOperation(ctx, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Resources: []string{name}}}}),
			"stream release": s.traceOperation(ctx, &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Lease: &pb.HeldLease{Resources: []string{name}}}}}),
		} {
			require.Equal(t, traced, call != nil, "%s of %s", what, name)
			call.End(0, "", nil)
		}
	}
}

func BenchmarkTracingOff(b *testing.B) {
	s, ctx := &Service{}, context.Background()
	b.ReportAllocs()
	for b.Loop() {
		trace(s, ctx, acquireOperation)
	}
}

// BenchmarkTracingOn exports the spans to a collector that discards them. With sample 0
// calls without a traceparent are not traced.
func BenchmarkTracingOn(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	for _, sample := range []float64{0, 1} {
		b.Run(fmt.Sprintf("sample=%v", sample), func(b *testing.B) {
			tracer, err := tracing.Open(tracing.Config{Endpoint: collector.URL, Sample: sample, Member: "n1", Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			defer tracer.Close()
			s, ctx := &Service{Tracer: tracer}, context.Background()
			b.ReportAllocs()
			for b.Loop() {
				trace(s, ctx, acquireOperation)
			}
		})
	}
}
