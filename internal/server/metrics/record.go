package metrics

import (
	"errors"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// Cause is why a lease ended.
type Cause string

// The causes.
const (
	Released Cause = "released"
	Expired  Cause = "expired"
	Broken   Cause = "broken"
	Lost     Cause = "lost"
)

// modeMetrics has the metrics of one mode. The counters of all label values are made in
// advance, so recording does not look up labels.
type modeMetrics struct {
	mode                  string
	grants, waits         prometheus.Counter
	timeToGrant, handoff  prometheus.Observer
	renewed, lost, failed prometheus.Counter // renewals
	ended                 map[Cause]prometheus.Counter
	failures              map[string]prometheus.Counter // by code
}

// newModeMetrics fills in the metrics of some modes.
func newModeMetrics(r registrar, list []modeMetrics) {
	grants, waits, failures := r.counters("grants_total"), r.counters("waits_total"), r.counters("acquire_errors_total")
	timeToGrant, handoff := r.histograms("time_to_grant_seconds"), r.histograms("handoff_seconds")
	renewals, ended := r.counters("renewals_total"), r.counters("leases_ended_total")
	for i := range list {
		m := &list[i]
		m.grants, m.waits = grants.WithLabelValues(m.mode), waits.WithLabelValues(m.mode)
		m.timeToGrant, m.handoff = timeToGrant.WithLabelValues(m.mode), handoff.WithLabelValues(m.mode)
		m.renewed, m.lost, m.failed = renewals.WithLabelValues(m.mode, "renewed"), renewals.WithLabelValues(m.mode, "lost"),
			renewals.WithLabelValues(m.mode, "failed")
		m.ended = map[Cause]prometheus.Counter{}
		for _, cause := range []Cause{Released, Expired, Broken, Lost} {
			m.ended[cause] = ended.WithLabelValues(m.mode, string(cause))
		}
		m.failures = map[string]prometheus.Counter{}
		for _, code := range wire.Codes() {
			if code != wire.CodeNotLeader {
				m.failures[code] = failures.WithLabelValues(m.mode, code)
			}
		}
	}
}

// Acquire is an acquire that is being served.
type Acquire struct {
	metrics *Metrics
	started engine.Instant
}

// StartAcquire notes the arrival of an acquire.
func (m *Metrics) StartAcquire() Acquire { return Acquire{m, m.clock.Now()} }

// Granted records that the acquire was granted. It may be a copy of one that was granted before.
func (a Acquire) Granted(mode engine.Mode) {
	a.metrics.byMode[mode].timeToGrant.Observe(a.metrics.clock.Now().Since(a.started).Seconds())
}

// Refused records an error with this code.
func (a Acquire) Refused(mode engine.Mode, code string) {
	if c := a.metrics.byMode[mode].failures[code]; c != nil {
		c.Inc()
	}
}

// Grants records a grant in efficiency mode. Those of correctness mode are counted when they are applied.
func (m *Metrics) Grants() { m.byMode[engine.Efficiency].grants.Inc() }

// Waits records an acquire in efficiency mode that has to wait.
func (m *Metrics) Waits() { m.byMode[engine.Efficiency].waits.Inc() }

// Renewed records the outcome of a renewal by a caller. A redirect to the leader is none.
func (m *Metrics) Renewed(mode engine.Mode, err error) {
	switch mm := &m.byMode[mode]; {
	case err == nil:
		mm.renewed.Inc()
	case errors.Is(err, engine.ErrLost):
		mm.lost.Inc()
	case CodeOf(err) != wire.CodeNotLeader:
		mm.failed.Inc()
	}
}

// Ended records the end of leases in efficiency mode that this member served. Those of
// correctness mode are counted when they are applied.
func (m *Metrics) Ended(cause Cause) { m.byMode[engine.Efficiency].ended[cause].Inc() }

// The kinds of gates and the reasons of refusals that have their own label values.
var (
	gateKinds = map[string]bool{"bolt": true, "call": true, "connect": true, "file": true, "grpc": true, "http": true,
		"memory": true, "object": true,
		"pgx": true, "redis": true, "sql": true}
	gateReasons = map[string]bool{"stale": true, "tokenless": true, "jump exceeded": true, "unsigned": true}
)

// newGates makes all series in advance: Prometheus does not see the first increase of a
// series that appears with it.
func newGates(r registrar) *prometheus.CounterVec {
	gates := r.counters("gate_refusals_total")
	for _, gate := range append(slices.Collect(maps.Keys(gateKinds)), other) {
		for _, reason := range append(slices.Collect(maps.Keys(gateReasons)), other) {
			gates.WithLabelValues(gate, reason)
		}
	}
	return gates
}

// other is the label value of everything that does not have its own.
const other = "other"

// GateRefused records that a gate refused a write, as a caller has reported it. Kinds
// and reasons that are not known count as other: callers cannot add label values.
func (m *Metrics) GateRefused(gate, reason string) {
	if !gateKinds[gate] {
		gate = other
	}
	if !gateReasons[reason] {
		reason = other
	}
	m.gates.WithLabelValues(gate, reason).Inc()
}
