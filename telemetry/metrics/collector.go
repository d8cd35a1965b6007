package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate"
)

// Buckets from half a millisecond, a grant in the same data center, to a minute of
// waiting for other holders.
var (
	waitBuckets  = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60}
	renewBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5}
)

// Collector is a prometheus.Collector for the clients and gates of a program. All
// methods may be called concurrently.
type Collector struct {
	acquired, released, errors, lost, renewals, decisions *prometheus.CounterVec

	time    *prometheus.HistogramVec
	held    *prometheus.GaugeVec
	waiting prometheus.Gauge
	renewal prometheus.Histogram
	all     []prometheus.Collector
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector without events.
func New() *Collector {
	c := &Collector{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		c.all = append(c.all, v)
		return v
	}
	c.acquired = counter("leased_client_acquired_total", "Leases that this program acquired or re-entered.", "mode")
	c.released = counter("leased_client_released_total", "Leases that this program released.", "mode")
	c.errors = counter("leased_client_acquire_errors_total",
		"Calls of Acquire and TryAcquire that returned an error, by code.", "code")
	c.lost = counter("leased_client_lost_total", "Leases that ended before this program released them, by cause.", "mode",
		"cause")
	c.renewals = counter("leased_client_renewals_total", "Keep-alives, each of which extends all leases of a session.",
		"result")
	c.decisions = counter("leased_gate_decisions_total",
		"Decisions of the gates of this program, by kind of gate and outcome.", "gate", "outcome")

	c.time = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "leased_client_time_to_acquire_seconds",
		Help: "Time from the call of Acquire to the lease, including the time in the queue.", Buckets: waitBuckets},
		[]string{"mode"})
	c.held = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leased_client_held",
		Help: "Leases that this program holds."}, []string{"mode"})
	c.waiting = prometheus.NewGauge(prometheus.GaugeOpts{Name: "leased_client_waiting",
		Help: "Calls of Acquire and TryAcquire in progress."})
	c.renewal = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leased_client_renewal_seconds",
		Help: "Time from a keep-alive to its answer or failure.", Buckets: renewBuckets})
	c.all = append(c.all, c.time, c.held, c.waiting, c.renewal)

	for _, mode := range []lease.Mode{lease.Efficiency, lease.Correctness} {
		// Prometheus does not see the first increase of a series that appears with it.
		c.acquired.WithLabelValues(mode.String())
		c.released.WithLabelValues(mode.String())
		c.time.WithLabelValues(mode.String())
		c.held.WithLabelValues(mode.String())
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, collector := range c.all {
		collector.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, collector := range c.all {
		collector.Collect(out)
	}
}

// Hooks returns the hooks for lease.WithHooks. Add other hooks with another
// lease.WithHooks.
func (c *Collector) Hooks() lease.Hooks {
	return lease.Hooks{
		Start: func(ctx context.Context, _ []fencing.Resource) context.Context {
			c.waiting.Inc()
			return ctx
		},
		Acquired: func(_ context.Context, e lease.Event) {
			mode := e.Mode.String() // "any" for an engine that names no mode
			c.waiting.Dec()
			c.held.WithLabelValues(mode).Inc()
			c.acquired.WithLabelValues(mode).Inc()
			c.time.WithLabelValues(mode).Observe(e.Elapsed.Seconds())
		},
		Failed: func(_ context.Context, e lease.Event) {
			c.waiting.Dec()
			c.errors.WithLabelValues(lease.Code(e.Err)).Inc()
		},
		Lost: func(_ context.Context, e lease.Event) {
			c.held.WithLabelValues(e.Mode.String()).Dec()
			c.lost.WithLabelValues(e.Mode.String(), lease.Code(e.Err)).Inc()
		},
		Released: func(_ context.Context, e lease.Event) {
			c.held.WithLabelValues(e.Mode.String()).Dec()
			c.released.WithLabelValues(e.Mode.String()).Inc()
		},
		Renewed: func(r lease.Renewal) {
			result := "ok"
			if r.Err != nil {
				result = "failed"
			}
			c.renewal.Observe(r.Elapsed.Seconds())
			c.renewals.WithLabelValues(result).Inc()
		},
	}
}

// Audit returns a hook for the Audit method of a gate. kind is the value of the label
// "gate", such as "sql"; refusals.Reporter.Audit lists more. Use few kinds, and no names
// of locks.
func (c *Collector) Audit(kind string) func(context.Context, storagegate.Decision) {
	var counters [storagegate.Unsigned + 1]prometheus.Counter
	for outcome := storagegate.Admitted; outcome <= storagegate.Unsigned; outcome++ {
		counters[outcome] = c.decisions.WithLabelValues(kind, outcome.String())
	}
	return func(_ context.Context, d storagegate.Decision) { counters[d.Outcome].Inc() }
}
