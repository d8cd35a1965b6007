package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease/engine"
)

// failoverTime limits a measurement, and the return of the killed server.
const failoverTime = 20 * time.Second

// measureFailover kills the leader while workers use their own locks, and measures the
// time to the next grant, and until every worker had a grant again. Only grants that were
// requested after the kill count.
func measureFailover(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	workers := s.Params["workers"]
	running, cancel := context.WithTimeout(ctx, failoverTime)
	defer cancel()
	f := &failover{next: make([]time.Duration, workers), missing: workers, complete: make(chan struct{})}
	options := b.options(s.Work)
	killAfter := options.WarmUp + options.Length
	options.Length, options.Granted = 2*failoverTime, f.granted
	var failed error
	options.Ready = func() {
		go func() {
			defer cancel()
			failed = f.kill(running, t.cluster, killAfter)
		}()
	}
	work := load.Work{Kind: load.Own, Workers: workers, Clients: t.clients(workers)}
	result, err := load.Run(running, t.open, work, options)
	if !f.done() {
		return errors.Join(fmt.Errorf("not every worker of %s had a grant after the kill", t.kind.Name), failed, err)
	}
	s.Figures[results.FailoverMillis] = millis(f.first)
	s.Figures[results.LastMillis] = millis(f.last)
	s.Figures[results.Errors] = float64(result.Errors)
	s.Note = result.FirstError
	restoring, stop := context.WithTimeout(ctx, failoverTime)
	defer stop()
	return t.cluster.Restore(restoring)
}

// failover is the first grants after a kill.
type failover struct {
	mu          sync.Mutex
	killed      time.Time
	next        []time.Duration // of each worker, after the kill; 0 if it had none yet
	missing     int             // number of workers without a grant
	first, last time.Duration
	complete    chan struct{} // closed when no worker is missing
}

// kill kills the leader after a time, and waits until all workers had a grant.
func (f *failover) kill(ctx context.Context, cluster *peers.Cluster, after time.Duration) error {
	if err := engine.Sleep(ctx, after); err != nil {
		return err
	}
	if err := cluster.KillLeader(ctx); err != nil {
		return fmt.Errorf("kill the leader: %w", err)
	}
	f.mu.Lock()
	f.killed = time.Now()
	f.mu.Unlock()
	select {
	case <-f.complete:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// granted records a grant.
func (f *failover) granted(g load.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.killed.IsZero() || g.Requested.Before(f.killed) || f.next[g.Worker] != 0 {
		return
	}
	after := max(1, g.At.Sub(f.killed))
	if f.next[g.Worker] = after; f.first == 0 {
		f.first = after
	}
	f.last = max(f.last, after)
	if f.missing--; f.missing == 0 {
		close(f.complete)
	}
}

func (f *failover) done() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missing == 0
}
