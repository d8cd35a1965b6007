package work

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// part is what the workers of one process measured with one lock.
type part struct {
	Result load.Result
	// Holds lists the times of each worker's grants, in nanoseconds since the epoch. The
	// processes run on one machine, so their clocks agree.
	Holds      [][]int64
	Begin, End int64         // of the measured time
	CPU        time.Duration // of the process
}

// contend runs workers of this process that compete for one lock. Ready may be nil.
func contend(ctx context.Context, t load.Target, work load.Work, options load.Options, m *meter.Meter) (part,
	error) {
	p := part{Holds: make([][]int64, work.Workers)}
	options.Granted = func(g load.Grant) { p.Holds[g.Worker] = append(p.Holds[g.Worker], g.At.UnixNano()) }
	options.Begin = func() {
		m.Begin()
		p.Begin = time.Now().UnixNano()
	}
	options.End = func() {
		p.End = time.Now().UnixNano()
		m.End()
	}
	var err error
	p.Result, err = load.Run(ctx, t, work, options)
	p.CPU = m.Usage().Client
	return p, err
}

// measureContended measures workers in one or more processes that compete for one lock.
// Its rate is that of handoffs: a worker that acquires the lock again right after its own
// release does not count.
func measureContended(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	workers, processes := s.Params["workers"], s.Params["processes"]
	m := meter.New(t.cluster.Pids)
	var parts []part
	var err error
	workers /= processes
	work := load.Work{Kind: load.Contended, Workers: workers, Clients: t.clients(workers)}
	if processes == 1 {
		var p part
		p, err = contend(ctx, t.open, work, b.options(s.Work), m)
		parts = []part{p}
	} else {
		parts, err = b.contendInProcesses(ctx, t, work, processes, m)
	}
	if err != nil {
		return err
	}
	var sum load.Result
	used := m.Usage()
	used.Client = 0
	for _, p := range parts {
		sum.Merge(p.Result)
		used.Client += p.CPU
	}
	fill(s, sum, used)
	s.Figures[results.Rate] = handoffs(parts)
	return nil
}

// handoffs returns how often per second the lock passed from one worker to another, while
// all processes measured.
func handoffs(parts []part) float64 {
	type hold struct {
		at     int64
		worker int
	}
	begin, end, workers := parts[0].Begin, parts[0].End, 0
	for _, p := range parts {
		begin, end = max(begin, p.Begin), min(end, p.End)
	}
	if begin >= end {
		return 0
	}
	var all []hold
	for _, p := range parts {
		for i, times := range p.Holds {
			for _, at := range times {
				if at >= begin && at <= end {
					all = append(all, hold{at, workers + i})
				}
			}
		}
		workers += len(p.Holds)
	}
	slices.SortFunc(all, func(a, b hold) int { return cmp.Compare(a.at, b.at) })
	n := 0
	for i := 1; i < len(all); i++ {
		if all[i].worker != all[i-1].worker {
			n++
		}
	}
	return float64(n) / time.Duration(end-begin).Seconds()
}
