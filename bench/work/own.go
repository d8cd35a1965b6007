package work

import (
	"cmp"
	"context"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// measureOwn measures workers that each have their own lock. The numbers of workers and clients are
// those of the case, or else that of curves, and what users of the service have.
func measureOwn(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	workers := cmp.Or(s.Params["workers"], curveWorkers)
	clients, given := s.Params["clients"]
	if !given {
		clients = t.clients(workers)
	}
	_, err := t.load(ctx, s, load.Work{Kind: load.Own, Workers: workers, Clients: clients}, b.options(s.Work), nil)
	return err
}

// options returns the times of a measurement.
func (b *bench) options(prefix string) load.Options {
	return load.Options{Prefix: prefix + "/", WarmUp: b.Length / 3, Length: b.Length}
}

// fill stores the figures of a run.
func fill(s *results.Sample, r load.Result, used meter.Usage) {
	s.Steal = used.Steal
	s.Figures[results.Errors] = float64(r.Errors)
	if r.Errors > 0 {
		s.Note = r.FirstError
	}
	if r.Pairs == 0 {
		return
	}
	s.Figures[results.Rate] = r.Rate()
	s.Figures[results.P50] = millis(r.Acquire.Quantile(0.5))
	s.Figures[results.P99] = millis(r.Acquire.Quantile(0.99))
	s.Figures[results.PairP50] = millis(r.Pair.Quantile(0.5))
	s.Figures[results.PairP99] = millis(r.Pair.Quantile(0.99))
	s.Figures[results.CPU] = millis(used.Client+used.Servers) / float64(r.Pairs) * 1000
	s.Figures[results.CPUServers] = millis(used.Servers) / float64(r.Pairs) * 1000
	s.Figures[results.Fairness] = r.Fairness()
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
