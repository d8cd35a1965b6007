package gocronlock

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// Locker takes a lease for each run of a job. If another scheduler has it, the run is
// skipped. Create the jobs with its Task.
type Locker struct {
	runs
	locks   *lease.Client
	prefix  string
	minHold time.Duration
	options []lease.AcquireOption
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. The lock of a job is the prefix followed by the job's
// name; set the name with gocron.WithName. A run holds its lease at least for minHold,
// even if the job ends earlier, so that a scheduler whose clock is late skips this run.
// The options apply to every acquire.
func NewLocker(locks *lease.Client, prefix string, minHold time.Duration, options ...lease.AcquireOption) *Locker {
	return &Locker{locks: locks, prefix: prefix, minHold: minHold, options: options}
}

// Lock takes the lease of a run, and returns lease.ErrHeld if another one has it.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	held, err := l.locks.TryAcquire(ctx, fencing.Resource(l.prefix+name), l.options...)
	if err != nil {
		return nil, err
	}
	l.give(ctx, held)
	return &run{lease: held, held: time.After(l.minHold)}, nil
}

// run is the lock of one run.
type run struct {
	lease *lease.Lease
	held  <-chan time.Time // receives when minHold is over
}

// Unlock releases the lease, or leaves that to a goroutine if minHold is not over. The
// context has ended if the scheduler is shutting down.
func (r *run) Unlock(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	select {
	case <-r.held:
		return r.lease.Release(ctx)
	default:
	}
	go func() {
		select {
		case <-r.held:
			_ = r.lease.Release(ctx) // a failed release is retried in the background and reported to the hooks
		case <-r.lease.Done():
		}
	}()
	return nil
}
