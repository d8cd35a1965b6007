package metrics_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/telemetry/metrics"
)

// gather returns the values of all series. The value of a histogram is its count.
func gather(t testing.TB, c *metrics.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			var labels []string
			for _, pair := range m.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func newClient(t testing.TB, options ...lease.Option) (*lease.Client, *memory.Backend) {
	t.Helper()
	backend, err := memory.New(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency})
	require.NoError(t, err)
	c, err := lease.New(backend, append([]lease.Option{lease.WithClock(engine.MonotonicClock())}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, backend
}

// TestCollectorFollowsAClient checks every metric of a client, except for losses.
func TestCollectorFollowsAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collector := metrics.New()
		c, backend := newClient(t, lease.WithHooks(collector.Hooks()))
		l, err := c.Acquire(t.Context(), "slow/a")
		require.NoError(t, err)
		fast, err := c.Acquire(t.Context(), "fast/a")
		require.NoError(t, err)
		_, err = c.TryAcquire(t.Context(), "slow/a")
		require.ErrorIs(t, err, lease.ErrHeld)
		_, err = c.TryAcquire(t.Context(), "")
		require.Error(t, err)

		waiting := make(chan error, 1)
		go func() {
			next, err := c.Acquire(t.Context(), "slow/a")
			if err == nil {
				err = next.Release(t.Context())
			}
			waiting <- err
		}()
		synctest.Wait()
		values := gather(t, collector)
		require.Equal(t, 1.0, values["leased_client_waiting"])
		require.Equal(t, 1.0, values["leased_client_held{mode=correctness}"])
		require.Equal(t, 1.0, values["leased_client_held{mode=efficiency}"])
		require.Equal(t, 1.0, values["leased_client_acquire_errors_total{code=held}"])
		require.Equal(t, 1.0, values["leased_client_acquire_errors_total{code=invalid-resource}"])

		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, <-waiting)
		time.Sleep(lease.DefaultTTL)
		backend.Fail(engine.ErrUnavailable)
		time.Sleep(lease.DefaultTTL / 2)
		backend.Fail(nil)
		synctest.Wait()
		values = gather(t, collector)
		require.Zero(t, values["leased_client_waiting"])
		require.Zero(t, values["leased_client_held{mode=correctness}"])
		require.Equal(t, 2.0, values["leased_client_acquired_total{mode=correctness}"])
		require.Equal(t, 1.0, values["leased_client_acquired_total{mode=efficiency}"])
		require.Equal(t, 2.0, values["leased_client_released_total{mode=correctness}"])
		require.Equal(t, 2.0, values["leased_client_time_to_acquire_seconds{mode=correctness}"])
		renewed := values["leased_client_renewals_total{result=ok}"]
		failed := values["leased_client_renewals_total{result=failed}"]
		require.NotZero(t, renewed)
		require.NotZero(t, failed)
		require.Equal(t, renewed+failed, values["leased_client_renewal_seconds"])
		require.NoError(t, fast.Release(t.Context()))
	})
}

// TestLossesHaveACause checks that each loss is counted once, with its cause.
func TestLossesHaveACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collector := metrics.New()
		c, backend := newClient(t, lease.WithHooks(collector.Hooks()))
		acquire := func(name fencing.Resource) *lease.Lease {
			l, err := c.Acquire(t.Context(), name)
			require.NoError(t, err)
			return l
		}
		broken := acquire("a")
		require.NoError(t, backend.Break(t.Context(), "a", broken.Token()))
		acquire("b")
		acquire("c")
		backend.Fail(engine.ErrUnavailable)
		time.Sleep(lease.DefaultTTL)
		backend.Fail(nil)
		synctest.Wait()
		acquire("fast/d")
		require.NoError(t, c.Close(t.Context()))
		values := gather(t, collector)
		require.Equal(t, 1.0, values["leased_client_lost_total{cause=taken,mode=correctness}"])
		require.Equal(t, 2.0, values["leased_client_lost_total{cause=expired,mode=correctness}"])
		require.Equal(t, 1.0, values["leased_client_lost_total{cause=closed,mode=efficiency}"])
		require.Zero(t, values["leased_client_held{mode=correctness}"])
		require.Zero(t, values["leased_client_held{mode=efficiency}"])
	})
}

func TestCollectorCountsDecisions(t *testing.T) {
	collector := metrics.New()
	gate := memgate.New[int](fencing.Rule{MaxJump: 100})
	gate.Audit(collector.Audit("memory"))
	write := func(value *int) error { *value++; return nil }
	require.NoError(t, gate.Do(t.Context(), "a", 5, write))
	require.NoError(t, gate.Do(t.Context(), "b", 6, write))
	require.ErrorIs(t, gate.Do(t.Context(), "a", 4, write), fencing.ErrStale)
	require.ErrorIs(t, gate.Do(t.Context(), "a", fencing.None, write), fencing.ErrStale)
	require.ErrorIs(t, gate.Do(t.Context(), "a", 500, write), fencing.ErrJump)
	require.Equal(t, map[string]float64{
		"leased_gate_decisions_total{gate=memory,outcome=admitted}":      2,
		"leased_gate_decisions_total{gate=memory,outcome=stale}":         1,
		"leased_gate_decisions_total{gate=memory,outcome=tokenless}":     1,
		"leased_gate_decisions_total{gate=memory,outcome=jump exceeded}": 1,
		"leased_gate_decisions_total{gate=memory,outcome=unsigned}":      0,
	}, only(gather(t, collector), "leased_gate_"))
	for o := storagegate.Admitted; o.String() != "unknown"; o++ {
		collector.Audit("all")(t.Context(), storagegate.Decision{Outcome: o})
	}
}

// TestEveryMetricIsDocumented checks that docs/METRICS.md has all metrics with their labels.
func TestEveryMetricIsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/METRICS.md")
	require.NoError(t, err)
	descriptions := make(chan *prometheus.Desc, 100)
	metrics.New().Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		found := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`).FindStringSubmatch(d.String())
		require.Len(t, found, 3, d.String())
		row := "| `" + found[1] + "` | " + strings.ReplaceAll(found[2], ",", ", ")
		require.Contains(t, string(document), row)
	}
}

func only(values map[string]float64, prefix string) map[string]float64 {
	for name := range values {
		if !strings.HasPrefix(name, prefix) {
			delete(values, name)
		}
	}
	return values
}

// TestSeriesAreBounded checks that names of locks and holders, and errors of any text,
// create no series.
func TestSeriesAreBounded(t *testing.T) {
	collector := metrics.New()
	hooks := collector.Hooks()
	audit := collector.Audit("memory")
	emit := func(i int) {
		name := fencing.Resource(fmt.Sprint("lock/", i))
		e := lease.Event{Resources: []fencing.Resource{name}, Holder: fmt.Sprint("holder-", i), Token: fencing.Token(i + 1),
			Mode: lease.Correctness,
			Err:  fmt.Errorf("%w: %d", engine.ErrExpired, i)}
		hooks.Failed(t.Context(), e)
		hooks.Lost(t.Context(), e)
		e.Err = fmt.Errorf("failure %d", i)
		hooks.Failed(t.Context(), e)
		hooks.Lost(t.Context(), e)
		hooks.Acquired(t.Context(), e)
		hooks.Released(t.Context(), e)
		hooks.Renewed(lease.Renewal{Err: e.Err})
		audit(t.Context(), storagegate.Decision{Resource: name, Token: e.Token, Outcome: storagegate.Stale})
	}
	emit(0)
	before := len(gather(t, collector))
	for i := range 1000 {
		emit(i)
	}
	require.Len(t, gather(t, collector), before)
}

// TestEventsAllocateNothing checks the cost of each hook.
func TestEventsAllocateNothing(t *testing.T) {
	collector := metrics.New()
	hooks, audit := collector.Hooks(), collector.Audit("memory")
	ctx := context.Background()
	held := lease.Event{Mode: lease.Correctness, Elapsed: time.Millisecond, Err: fmt.Errorf("acquire: %w", engine.ErrHeld)}
	for name, event := range map[string]func(){
		"Start":    func() { hooks.Start(ctx, nil) },
		"Acquired": func() { hooks.Acquired(ctx, held) },
		"Failed":   func() { hooks.Failed(ctx, held) },
		"Lost":     func() { hooks.Lost(ctx, held) },
		"Released": func() { hooks.Released(ctx, held) },
		"Renewed":  func() { hooks.Renewed(lease.Renewal{Elapsed: time.Millisecond, Err: held.Err}) },
		"Audit":    func() { audit(ctx, storagegate.Decision{Outcome: storagegate.Stale}) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, event), name)
	}
}

// BenchmarkAcquireRelease measures what the collector adds to a lease on the memory
// engine, which has no network: go test -run '^$' -bench . ./telemetry/metrics
func BenchmarkAcquireRelease(b *testing.B) {
	for _, tt := range []struct {
		name    string
		options []lease.Option
	}{
		{"plain", nil},
		{"collector", []lease.Option{lease.WithHooks(metrics.New().Hooks())}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			c, _ := newClient(b, tt.options...)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				l, err := c.TryAcquire(ctx, "a")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEvents measures the hooks of one lease and of one decision of a gate, alone.
func BenchmarkEvents(b *testing.B) {
	collector := metrics.New()
	hooks, audit := collector.Hooks(), collector.Audit("memory")
	ctx := context.Background()
	event := lease.Event{Mode: lease.Correctness, Elapsed: time.Millisecond}
	b.Run("lease", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hooks.Acquired(hooks.Start(ctx, nil), event)
			hooks.Released(ctx, event)
		}
	})
	b.Run("decision", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			audit(ctx, storagegate.Decision{Outcome: storagegate.Admitted})
		}
	})
}
