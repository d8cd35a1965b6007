package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/leased-project/leased/internal/logtest"
	servertracing "github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/telemetry/tracing"
)

// open returns a tracer of a service.
func open(t testing.TB, endpoint string, sample float64, log *logtest.Log) *servertracing.Tracer {
	t.Helper()
	tracer, err := servertracing.Open(servertracing.Config{Endpoint: endpoint, Sample: sample, Member: "n1",
		Version: "test", Logger: log.Logger()})
	require.NoError(t, err)
	return tracer
}

// call makes the spans of a call with a step.
func call(tracer *servertracing.Tracer, parent string) {
	c := tracer.Begin(context.Background(), servertracing.Acquire, parent, []string{"a"}, "test")
	c.Step(servertracing.Commit)
	c.End(1, "correctness", nil)
}

// Without sampling, only callers that sample get spans.
func TestNothingIsSampled(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	node, s := startMember(t, "n1", engine.Fleet{}, c.URL, 0)
	require.NoError(t, node.Bootstrap())
	testserver.Eventually(t, "a leader", node.Leads)
	for _, parent := range []string{"", "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-00"} {
		request, err := http.NewRequestWithContext(testserver.Context(t), http.MethodPost,
			"http://"+s.Address()+"/v1/acquire", strings.NewReader(`{"resource":"a`+parent+`"}`))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Traceparent", parent)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	tracer := open(t, c.URL, 0, logtest.New(slog.LevelInfo))
	call(tracer, "")
	sampled := strings.Repeat("3", 32)
	call(tracer, "00-"+sampled+"-"+strings.Repeat("2", 16)+"-01")
	require.NoError(t, tracer.Close())
	c.await(t, sampled, "leased.Acquire")
	require.Empty(t, c.find(func(s span) bool { return s.traceID != sampled }))
}

// Close exports what is left.
func TestCloseExportsTheLastSpans(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	tracer := open(t, c.URL, 1, logtest.New(slog.LevelInfo))
	for range 100 {
		call(tracer, "")
	}
	require.NoError(t, tracer.Close())
	require.Len(t, c.find(func(span) bool { return true }), 200)
}

// A collector that does not answer blocks neither calls nor Close, and is logged once.
func TestUnreachableCollector(t *testing.T) {
	t.Parallel()
	log := logtest.New(slog.LevelInfo)
	tracer := open(t, "http://"+testserver.FreeAddr(t), 1, log)
	for i := range 4 {
		for range 3000 { // more than the queue holds
			call(tracer, "")
		}
		testserver.Eventually(t, "the failure is logged", func() bool { return log.Count("") > 0 })
		require.Len(t, log.Lines(""), 1, i)
	}
	_ = tracer.Close()
	require.Contains(t, log.Lines("")[0].Message, "cannot export traces")

	stuck := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	defer hanging.Close()
	defer close(stuck)
	tracer = open(t, hanging.URL, 1, log)
	for range 5000 {
		call(tracer, "")
	}
	require.Error(t, tracer.Close(), "it returns although the collector never answers")
}

// A collector that comes back is logged once, too.
func TestCollectorComesBack(t *testing.T) {
	t.Parallel()
	log := logtest.New(slog.LevelInfo)
	down := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-down:
			w.Header().Set("Content-Type", "application/x-protobuf")
		default:
			http.Error(w, "down", http.StatusInternalServerError)
		}
	}))
	defer c.Close()
	tracer := open(t, c.URL, 1, log)
	testserver.Eventually(t, "the failure is logged", func() bool { call(tracer, ""); return log.Count("") == 1 })
	close(down)
	testserver.Eventually(t, "the recovery is logged", func() bool {
		call(tracer, "")
		return log.Count("exporting traces again") == 1
	})
	require.NoError(t, tracer.Close())
	require.Len(t, log.Lines(""), 2)
}

// A program without a provider pays nothing on the wire, and its calls work.
func TestWithoutAProvider(t *testing.T) {
	t.Parallel()
	tracer := tracing.New(noop.NewTracerProvider())
	backend, err := memory.New()
	require.NoError(t, err)
	c, err := lease.New(backend, lease.WithHooks(tracer.Hooks()))
	require.NoError(t, err)
	defer c.Close(testserver.Context(t))
	l, err := c.Acquire(testserver.Context(t), "a")
	require.NoError(t, err)
	require.Empty(t, engine.TraceparentOf(l.Context()))
	require.NoError(t, tracer.Write(testserver.Context(t), l, func(context.Context) error { return nil }))
	require.ErrorContains(t, tracer.Write(testserver.Context(t), l, func(context.Context) error {
		return fmt.Errorf("full")
	}), "full")
}
