package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
	"github.com/leased-project/leased/telemetry/metrics"
	"github.com/leased-project/leased/telemetry/refusals"
)

// proxyGate is the kind of gate in the metrics of the proxy and in its reports.
const proxyGate = "http"

// proxyTelemetry exports the decisions of a gate proxy, and reports refused writes to the
// service if it was told to.
type proxyTelemetry struct {
	registry *prometheus.Registry
	reporter *refusals.Reporter // nil if the proxy does not report
	client   *lease.Client
	backend  *remote.Backend
}

// newProxyTelemetry returns the telemetry of a proxy. It does not connect to the service:
// the proxy also works while the service is down.
func newProxyTelemetry(report bool, access *access) (*proxyTelemetry, error) {
	t := &proxyTelemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if !report {
		return t, nil
	}
	addresses, options, err := access.remote()
	if err != nil {
		return nil, err
	}
	if t.backend, err = remote.New(addresses, options...); err != nil {
		return nil, usageError(err)
	}
	host, _ := os.Hostname()
	if t.client, err = lease.New(t.backend, lease.WithName("gate proxy at "+host)); err != nil {
		return nil, errors.Join(err, t.backend.Close())
	}
	t.reporter = refusals.New(t.client)
	return t, nil
}

// attach begins to observe a proxy that has served no request yet.
func (t *proxyTelemetry) attach(p *proxy.Proxy) {
	decisions := metrics.New()
	t.registry.MustRegister(decisions)
	p.Audit(decisions.Audit(proxyGate))
	if t.reporter != nil {
		t.exportReports()
		p.Audit(t.reporter.Audit(proxyGate))
	}
}

// exportReports exports the results of the reports.
func (t *proxyTelemetry) exportReports() {
	for result, count := range map[string]func(refusals.Counts) uint64{
		"sent":     func(c refusals.Counts) uint64 { return c.Sent },
		"repeated": func(c refusals.Counts) uint64 { return c.Repeated },
		"dropped":  func(c refusals.Counts) uint64 { return c.Dropped },
		"failed":   func(c refusals.Counts) uint64 { return c.Failed },
	} {
		t.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "leased_gate_reports_total",
			Help: "Refused writes, by the result of the report to the service.", ConstLabels: prometheus.Labels{"result": result}},
			func() float64 { return float64(count(t.reporter.Counts())) }))
	}
}

// serve serves the metrics at /metrics, and next at all other paths.
func (t *proxyTelemetry) serve(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{}))
	mux.Handle("/", next)
	return mux
}

// close sends the reports that wait and closes the connection to the service. It does
// not wait long: reports are hints.
func (t *proxyTelemetry) close(ctx context.Context) {
	if t.reporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = t.reporter.Flush(ctx)
	_ = t.client.Close(ctx)
	_ = t.backend.Close()
}
