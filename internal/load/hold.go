package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/leased-project/leased/internal/progress"
)

// hold acquires all locks of the work, and releases them after End.
func (r *runner) hold(ctx context.Context, work Work) (time.Duration, error) {
	held := make([][]Held, work.Workers)
	r.phase.Store(measuring)
	call(r.Begin)
	begin := time.Now()
	taking := make(chan struct{}, cmp.Or(r.AtOnce, work.Workers))
	err := each(work.Workers, func(worker int) error {
		taking <- struct{}{}
		defer func() { <-taking }()
		return r.acquireMany(ctx, work, worker, &held[worker])
	})
	elapsed := time.Since(begin)
	if err == nil {
		call(r.End)
	}
	if r.Abandon {
		return elapsed, err
	}
	return elapsed, errors.Join(err, each(work.Workers, func(worker int) error {
		var errs []error
		for _, h := range held[worker] {
			errs = append(errs, h.Release(context.WithoutCancel(ctx)))
		}
		return errors.Join(errs...)
	}))
}

// acquireMany acquires the locks of one worker.
func (r *runner) acquireMany(ctx context.Context, work Work, worker int, held *[]Held) error {
	for i := worker; i < work.Leases; i += work.Workers {
		h, _, err := r.take(ctx, worker, r.Prefix+strconv.Itoa(i))
		if err != nil {
			return fmt.Errorf("acquire lock %d of %d: %w", i+1, work.Leases, err)
		}
		*held = append(*held, h)
		if done := r.pairs.Add(1); worker == 0 {
			r.showHeld(done, int64(work.Leases))
		}
	}
	return nil
}

func (r *runner) showHeld(done, total int64) {
	text := fmt.Sprintf("%d of %d locks held", done, total)
	if left, known := (progress.Work{Done: done, Total: total, Elapsed: time.Since(r.started)}).Left(); known {
		text += ", " + progress.TimeLeft(left)
	}
	r.Progress.Show(text)
}

// each calls do for 0 to n-1 at once.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
