package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

const (
	// pauseWorkers is the number of workers that acquire while a snapshot is taken. They are few, so that they do not
	// use the CPU time that the snapshot needs.
	pauseWorkers = 4
	// pauseWindow is the least time over which the longest pause is looked for.
	pauseWindow = time.Second
	// snapshotTime limits a snapshot.
	snapshotTime = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// pause finds the longest time between two grants.
type pause struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

// granted is called for each grant.
func (p *pause) granted(g load.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see(g.At)
}

// see notes the time of a grant, or the end of the window.
func (p *pause) see(now time.Time) {
	if !p.last.IsZero() {
		p.longest = max(p.longest, now.Sub(p.last))
	}
	p.last = now
}

// within returns the longest pause while do runs, at least for the window. Pauses that reach into the window count.
func (p *pause) within(do func() error) (longest, elapsed time.Duration, err error) {
	p.mu.Lock()
	p.longest = 0
	p.mu.Unlock()
	begin := time.Now()
	err = do()
	elapsed = time.Since(begin)
	time.Sleep(pauseWindow - elapsed)
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.longest, time.Since(p.last)), elapsed, err
}

// measurePause measures the longest time without a grant while the leader takes a snapshot, and without one. It makes
// a sample of its own.
func (b *bench) measurePause(ctx context.Context, t *target, s *results.Sample) error {
	leader, err := t.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	p, done := &pause{}, make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		_, err := load.Run(working, t.open, load.Work{Kind: load.Own, Workers: pauseWorkers, Clients: 1},
			load.Options{WarmUp: b.Length / 3, Length: time.Hour, Begin: func() { close(begun) }, Granted: p.granted})
		done <- err
	}()
	defer func() { stop(); <-done }()
	select {
	case <-begun:
	case err := <-done:
		done <- nil
		return errors.Join(errors.New("the workers did not begin"), err)
	}
	m := meter.New(t.cluster.Pids)
	m.Begin()
	var seconds, bytes float64
	with, window, err := p.within(func() (err error) {
		seconds, bytes, err = snapshot(ctx, t.cluster, leader)
		return err
	})
	if err != nil {
		return err
	}
	without, _, _ := p.within(func() error { time.Sleep(window); return nil })
	m.End()
	sample := results.Sample{Work: "snapshot", Target: s.Target, Params: s.Params, Round: s.Round, Steal: m.Usage().Steal}
	sample.Figures = map[string]float64{
		results.PauseMillis: millis(with), results.QuietMillis: millis(without),
		results.SnapshotMillis: 1000 * seconds, results.SnapshotBytes: bytes,
	}
	b.Measured(sample)
	return nil
}

// snapshot makes a member take a snapshot, and returns how many seconds it took and its size. The member would also
// send the snapshot, which is not measured: the call ends when the member's metrics show that the snapshot is on
// disk.
func snapshot(ctx context.Context, members *peers.Cluster, member int) (seconds, bytes float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	const count, sum = "leased_raft_snapshot_seconds_count", "leased_raft_snapshot_seconds_sum"
	before, err := metrics(ctx, members.Endpoints[member])
	if err != nil {
		return 0, 0, err
	}
	calling, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- members.Snapshot(calling, member)
	}()
	defer func() { end(); <-ended }()
	for {
		after, err := metrics(ctx, members.Endpoints[member])
		if err != nil {
			return 0, 0, fmt.Errorf("wait for a snapshot: %w", err)
		}
		if after[count] > before[count] {
			return (after[sum] - before[sum]) / (after[count] - before[count]), after["leased_raft_snapshot_size_bytes"], nil
		}
		select {
		case err := <-ended:
			ended <- err
			if err != nil {
				return 0, 0, fmt.Errorf("take a snapshot: %w", err)
			}
			time.Sleep(pollInterval)
		case <-time.After(pollInterval):
		}
	}
}
