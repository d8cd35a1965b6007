package gocronlock

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// Elector makes one of several schedulers the leader, which runs all jobs. Create the
// jobs with its Task.
type Elector struct {
	runs
	resource fencing.Resource

	mu  sync.Mutex
	led *lease.Lease // nil if this scheduler does not lead
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector. It does nothing until Campaign runs.
func NewElector(resource fencing.Resource) *Elector { return &Elector{resource: resource} }

// Campaign campaigns until ctx ends, and again after each loss. It returns why it ended,
// as lease.Client.Elect does.
func (e *Elector) Campaign(ctx context.Context, locks *lease.Client, options ...lease.AcquireOption) error {
	return locks.Elect(ctx, e.resource, func(ctx context.Context, l *lease.Lease) error {
		e.lead(l)
		defer e.lead(nil)
		<-ctx.Done()
		return context.Cause(ctx)
	}, options...)
}

func (e *Elector) lead(l *lease.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.led = l
}

// IsLeader returns nil if this scheduler leads as far as it knows.
func (e *Elector) IsLeader(job context.Context) error {
	e.mu.Lock()
	l := e.led
	e.mu.Unlock()
	if l == nil {
		return fmt.Errorf("lead %q: %w", string(e.resource), lease.ErrNotHeld)
	}
	if err := l.Err(); err != nil {
		return err
	}
	e.give(job, l)
	return nil
}
