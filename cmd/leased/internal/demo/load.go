package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/memgate"
)

const (
	// pausedTTL is the TTL of the paused writer's lease.
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
	// Client acquires the locks, and reports the writes that the gate refused.
	Client *lease.Client
	// Workers is the number of workers of all teams, in addition to the holder of the
	// blocked lock, its queue and the two writers.
	Workers int
	// Prefix starts the names of all locks.
	Prefix string
	// Out receives a line for each refused write, and for the first failure with each code.
	Out io.Writer

	grants, refused atomic.Int64
	gate            *memgate.Gate[string]

	mu       sync.Mutex // guards failures and Out
	failures map[string]int64
}

// Totals is what has happened so far.
type Totals struct {
	Grants, Refused int64
	// Failures are the numbers of failed calls, by the code of the error.
	Failures map[string]int64
}

// Totals returns what has happened so far.
func (d *Load) Totals() Totals {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Totals{d.grants.Load(), d.refused.Load(), maps.Clone(d.failures)}
}

// failed counts a failed call. It prints the first one with each code.
func (d *Load) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return // the demo ends
	}
	code := wire.KindOf(err).Code
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failures == nil {
		d.failures = map[string]int64{}
	}
	if d.failures[code]++; d.failures[code] == 1 {
		text, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Fprintf(d.Out, "%s failed: %s; further failures with the code %s are counted\n", what, text, code)
	}
}

// print prints a line.
func (d *Load) print(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.Out, format+"\n", args...)
}

// Run runs the demo until ctx ends.
func (d *Load) Run(ctx context.Context) {
	d.gate = memgate.New[string](fencing.Rule{})
	var work sync.WaitGroup
	work.Go(func() {
		metadata := map[string]string{"build": "4711", "step": "database migration"}
		d.forever(ctx, blockedLock, "deploy-bot", 24*time.Hour, lease.WithMetadata(metadata))
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
		_ = engine.Sleep(ctx, upTo(t.rest))
		lock := t.locks[rand.IntN(len(t.locks))]
		options := append([]lease.AcquireOption{lease.WithWaitLimit(waitLimit)}, t.options...)
		d.forever(ctx, lock, holder, upTo(t.hold), options...)
	}
}

// queue waits for the blocked lock.
func (d *Load) queue(ctx context.Context, holder string) {
	_ = engine.Sleep(ctx, retryInterval) // the holder of the lock comes first
	for ctx.Err() == nil {
		d.forever(ctx, blockedLock, holder, time.Second)
	}
}

// forever holds a lock for a time, or until ctx ends. After an error of the service it
// returns a moment later, so its caller can try again.
func (d *Load) forever(ctx context.Context, lock, holder string, hold time.Duration, options ...lease.AcquireOption) {
	l, err := d.Client.Acquire(ctx, fencing.Resource(d.Prefix+lock), append(options, lease.WithHolder(holder))...)
	if err != nil {
		d.failed(ctx, "a worker", err)
		_ = engine.Sleep(ctx, retryInterval)
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
		if err := d.pausedWrite(ctx); err != nil {
			d.failed(ctx, "the paused writer", err)
		}
		_ = engine.Sleep(ctx, pausedRest)
	}
}

// pausedWrite simulates a paused holder: the lease of the first writer expires, a second writer
// acquires the lock and writes, and then the first one tries to write with its old token.
func (d *Load) pausedWrite(ctx context.Context) error {
	const first, second = "ledger-1", "ledger-2"
	resource := fencing.Resource(d.Prefix + ledgerLock)
	paused, err := d.Client.Acquire(ctx, resource, lease.WithHolder(first), lease.WithTTL(pausedTTL),
		lease.WithWaitLimit(waitLimit), lease.WithoutRenewal())
	if err != nil {
		return err
	}
	d.grants.Add(1)
	late := paused.Token()
	if err := d.gate.Enter(ctx, resource, late); err != nil {
		return err
	}
	next, err := d.Client.Acquire(ctx, resource, lease.WithHolder(second)) // waits until the first lease has expired
	if err != nil {
		return err
	}
	d.grants.Add(1)
	defer func() { _ = next.Release(context.WithoutCancel(ctx)) }()
	if err := d.write(ctx, resource, next.Token(), second); err != nil {
		return err
	}
	err = d.write(ctx, resource, late, first)
	var stale *fencing.StaleError
	if !errors.As(err, &stale) {
		return fmt.Errorf("the gate admitted the late write of %s with token %d: %w", first, late, err)
	}
	d.refused.Add(1)
	d.print("the lease of %s expired while it was paused; the gate refused its late write with token %d, because %s "+
		"has written with token %d", first, stale.Token, second, stale.Mark)
	return d.Client.ReportRefusal(ctx, lease.Refusal{Resource: stale.Resource, Token: stale.Token, Mark: stale.Mark,
		Gate: "memory", Reason: storagegate.Stale.String(), Holder: first})
}

func (d *Load) write(ctx context.Context, resource fencing.Resource, token fencing.Token, text string) error {
	return d.gate.Do(ctx, resource, token, func(value *string) error {
		*value = text
		return nil
	})
}

// upTo returns a random duration between a tenth of d and d.
func upTo(d time.Duration) time.Duration { return d/10 + rand.N(d*9/10) }
