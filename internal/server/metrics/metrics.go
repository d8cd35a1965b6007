package metrics

import (
	"cmp"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// Path is the HTTP path of the metrics.
	Path = "/metrics"
	// maxScrapes bounds the scrapes that one Handler serves at the same time.
	maxScrapes = 2
)

// Metrics has the metrics of one member. All methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	clock    engine.Clock
	byMode   [3]modeMetrics // by engine.Mode; AnyMode is not used
	raft     raftMetrics
	calls    calls
	gates    *prometheus.CounterVec
	redis    struct {
		calls  *prometheus.HistogramVec
		errors *prometheus.CounterVec
	}
	migrations migrations
}

// New returns the metrics of a program with this version. commit is what it was built from,
// empty if that is not known.
func New(version, commit string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), clock: engine.MonotonicClock()}
	r := registrar{m.registry}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.byMode[engine.Efficiency] = modeMetrics{mode: engine.Efficiency.String()}
	m.byMode[engine.Correctness] = modeMetrics{mode: engine.Correctness.String()}
	newModeMetrics(r, m.byMode[engine.Efficiency:])
	m.raft = newRaftMetrics(r)
	m.calls = newCalls(r)
	m.gates = newGates(r)
	m.redis.calls, m.redis.errors = r.histograms("redis_call_seconds"), r.counters("redis_errors_total")
	r.gauges("build_info").WithLabelValues(version, cmp.Or(commit, "unknown"), runtime.Version()).Set(1)
	return m
}

// Handler returns a handler of scrapes. It serves few at a time: use one for each port, so
// that the callers of one port cannot keep the callers of another from scraping.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes,
		ErrorHandling: promhttp.ContinueOnError})
}

// Gatherer returns the registry, for tests.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// registrar registers the families of the table.
type registrar struct{ *prometheus.Registry }

// familyOf returns a row of the table.
func familyOf(name string) family {
	for _, f := range families {
		if f.name == name {
			return f
		}
	}
	panic("metric " + name + " is not in the table of families")
}

func (r registrar) counters(name string) *prometheus.CounterVec {
	f := familyOf(name)
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: f.name, Help: f.help},
		f.labels)
}

func (r registrar) gauges(name string) *prometheus.GaugeVec {
	f := familyOf(name)
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: f.name, Help: f.help}, f.labels)
}

func (r registrar) histograms(name string) *prometheus.HistogramVec {
	f := familyOf(name)
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: f.name, Help: f.help,
		Buckets: f.buckets}, f.labels)
}
