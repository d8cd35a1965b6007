package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/telemetry/metrics"
)

func Example() {
	ctx := context.Background()
	collector := metrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	backend, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err := lease.New(backend, lease.WithHooks(collector.Hooks())) // client.Dial in a program
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	gate := memgate.New[int](fencing.Rule{})
	gate.Audit(collector.Audit("memory"))

	err = client.Do(ctx, "counter", func(ctx context.Context, l *lease.Lease) error {
		return gate.Do(ctx, l.GateResource(), l.Token(), func(value *int) error { *value++; return nil })
	})
	if err != nil {
		log.Fatal(err)
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "leased_") && strings.HasSuffix(line, " 1\n") && !strings.Contains(line, "_bucket") {
			fmt.Print(line)
		}
	}
	// Output:
	// leased_client_acquired_total{mode="correctness"} 1
	// leased_client_released_total{mode="correctness"} 1
	// leased_client_time_to_acquire_seconds_count{mode="correctness"} 1
	// leased_gate_decisions_total{gate="memory",outcome="admitted"} 1
}
