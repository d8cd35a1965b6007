package gocronlock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/leased-project/leased/lease"
)

// ErrNoLease means that a job runs without a lease: its scheduler does not have the
// Locker or the Elector that made its Task.
var ErrNoLease = errors.New("the job has no lease; give the scheduler the Locker or Elector that made its task")

// runs passes the lease that a scheduler took for a run to the function of the job.
// gocron calls both with the context of the job, one after the other.
type runs struct {
	mu     sync.Mutex
	leases map[context.Context]*lease.Lease // taken, and not yet passed on
}

// give keeps a lease for the run that begins. If it replaces one that no run has taken
// yet, that run finds another one's lease or none, but no two runs get the same lease.
func (r *runs) give(job context.Context, l *lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leases == nil {
		r.leases = map[context.Context]*lease.Lease{}
	}
	r.leases[job] = l
}

func (r *runs) take(job context.Context) *lease.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[job]
	delete(r.leases, job)
	return l
}

// Task makes a task of a function that takes the lease of the run. The context of the
// function ends when the lease is lost or the scheduler stops; context.Cause says which.
// The run fails if the lease was lost before the function returned.
func (r *runs) Task(work func(ctx context.Context, l *lease.Lease) error) gocron.Task {
	return gocron.NewTask(func(job context.Context) error {
		l := r.take(job)
		if l == nil {
			return ErrNoLease
		}
		ctx, cancel := context.WithCancelCause(job)
		defer cancel(nil)
		defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
		err := work(ctx, l)
		return errors.Join(err, l.Err())
	})
}
