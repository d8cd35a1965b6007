package loaddemo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/memgate"
)

const (
	// pausedTTL is the TTL of the paused writer's lease, which it does not renew.
	pausedTTL = 3 * time.Second
	// pausedRest is the time between two pauses.
	pausedRest = 5 * time.Second
	// waitLimit bounds how long a worker waits for a lock.
	waitLimit = 30 * time.Second
	// retryInterval is the time after an error of the service.
	retryInterval = time.Second
)

// Load is the demo.
type Load struct {
	// Client acquires the locks.
	Client *lease.Client
	// Workers is the number of workers of all teams, in addition to the holder of the
	// blocked lock, its queue and the two writers.
	Workers int
	// Prefix starts the names of all locks.
	Prefix string
	// Refused reports a write that the gate refused to the service.
	Refused func(ctx context.Context, stale *fencing.StaleError, holder string) error
	// Out receives a line for each refused write.
	Out io.Writer

	grants, refused atomic.Int64
	gate            *memgate.Gate[string]
}

// Totals is what has happened so far.
type Totals struct{ Grants, Refused int64 }

// Totals returns what has happened so far.
func (d *Load) Totals() Totals { return Totals{d.grants.Load(), d.refused.Load()} }

// Run runs the demo until ctx ends.
func (d *Load) Run(ctx context.Context) {
	d.gate = memgate.New[string](fencing.Rule{})
	var work sync.WaitGroup
	work.Go(func() {
		d.forever(ctx, blockedLock, "deploy-bot", 24*time.Hour, lease.WithMetadata(map[string]string{"build": "4711", "step": "database migration"}))
	})
	for _, name := range []string{"ann@laptop", "release-train", "hotfix-812"} {
		work.Go(func() { d.queue(ctx, name) })
	}
	work.Go(func() { d.pauses(ctx) })
	for i := range d.Workers {
		t := teams[i%len(teams)]
		work.Go(func() { d.work(ctx, t, fmt.Sprintf("%s-%d", t.name, i/len(teams)+1)) })
	}
	work.Wait()
}

// work lets a worker of a team acquire, hold and release locks.
func (d *Load) work(ctx context.Context, t team, holder string) {
	for ctx.Err() == nil {
		pause(ctx, upTo(t.rest))
		lock := t.locks[rand.IntN(len(t.locks))]
		d.forever(ctx, lock, holder, upTo(t.hold), append([]lease.AcquireOption{lease.WithWaitLimit(waitLimit)}, t.options...)...)
	}
}

// queue waits for the blocked lock.
func (d *Load) queue(ctx context.Context, holder string) {
	pause(ctx, retryInterval) // the holder of the lock comes first
	for ctx.Err() == nil {
		d.forever(ctx, blockedLock, holder, time.Second)
	}
}

// forever holds a lock for a time, or until ctx ends. After an error of the service it
// returns a moment later, so that its caller can try again.
func (d *Load) forever(ctx context.Context, lock, holder string, hold time.Duration, options ...lease.AcquireOption) {
	l, err := d.Client.Acquire(ctx, fencing.Resource(d.Prefix+lock), append(options, lease.WithHolder(holder))...)
	if err != nil {
		pause(ctx, retryInterval)
		return
	}
	d.grants.Add(1)
	select {
	case <-time.After(hold):
	case <-l.Done():
	case <-ctx.Done():
	}
	_ = l.Release(context.WithoutCancel(ctx)) // a lease that was lost has nothing to release
}

// pauses repeats the story of the paused writer.
func (d *Load) pauses(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.pausedWrite(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(d.Out, "the paused writer failed: %v\n", err)
		}
		pause(ctx, pausedRest)
	}
}

// pausedWrite lets one writer lose its lease, as if it were paused, another one write, and
// the first one write late.
func (d *Load) pausedWrite(ctx context.Context) error {
	const first, second = "ledger-1", "ledger-2"
	resource := fencing.Resource(d.Prefix + ledgerLock)
	late, err := d.Client.Acquire(ctx, resource, lease.WithHolder(first), lease.WithTTL(pausedTTL), lease.WithoutRenewal())
	if err != nil {
		return err
	}
	d.grants.Add(1)
	if err := d.gate.Enter(ctx, resource, late.Token()); err != nil {
		return err
	}
	next, err := d.Client.Acquire(ctx, resource, lease.WithHolder(second)) // waits until the first lease has expired
	if err != nil {
		return err
	}
	d.grants.Add(1)
	defer func() { _ = next.Release(context.WithoutCancel(ctx)) }()
	if err := d.write(ctx, next, second); err != nil {
		return err
	}
	err = d.write(ctx, late, first)
	var stale *fencing.StaleError
	if !errors.As(err, &stale) {
		return fmt.Errorf("the gate admitted the late write of %s with token %d: %w", first, late.Token(), err)
	}
	d.refused.Add(1)
	fmt.Fprintf(d.Out, "%s was paused; the gate refused its late write with token %d, because %s has written with token %d\n",
		first, stale.Token, second, stale.Mark)
	return d.Refused(ctx, stale, first)
}

func (d *Load) write(ctx context.Context, l *lease.Lease, text string) error {
	return d.gate.Do(ctx, l.Resource(), l.Token(), func(value *string) error {
		*value = text
		return nil
	})
}

// upTo returns a random duration between a tenth of d and d.
func upTo(d time.Duration) time.Duration { return d/10 + rand.N(d*9/10) }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
