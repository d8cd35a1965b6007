package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// call is an acquire or a release of one lock that waits for its answer.
type call struct {
	ctx      context.Context
	resource fencing.Resource
	attempt  string
	acquire  acquisition
	answer   chan answer // buffered
}

// acquisition has the arguments of an acquire.
type acquisition struct {
	holder   string
	ttl      time.Duration
	metadata *string        // JSON
	wait     *time.Duration // the time for which the place in the queue is kept; nil without waiting
}

// answer is the answer of the database. A release uses only err.
type answer struct {
	Attempt   string
	Token     *int64
	Remaining *time.Duration
	HeldBy    *string
	err       error
}

const (
	batchLimit    = 256 // calls in one transaction
	batchesAtOnce = 4   // transactions at one time
)

// batches collects the calls that arrive while others are in progress and makes them in one transaction,
// because a commit and a message cost more than a lock.
type batches struct {
	run func(ctx context.Context, calls []*call)

	mu       sync.Mutex
	waiting  []*call
	running  int
	underWay map[fencing.Resource]bool
}

func newBatches(run func(ctx context.Context, calls []*call)) *batches {
	return &batches{run: run, underWay: map[fencing.Resource]bool{}}
}

// do makes a call and returns its answer.
func (b *batches) do(c *call) answer {
	c.answer = make(chan answer, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	if b.running < batchesAtOnce {
		b.running++
		go b.drain()
	}
	b.mu.Unlock()
	select {
	case a := <-c.answer:
		return a
	case <-c.ctx.Done():
		return answer{err: context.Cause(c.ctx)}
	}
}

// drain runs batches until no call waits, or until all waiting calls are for locks of a running batch, whose rows
// they would have to wait for.
func (b *batches) drain() {
	for {
		calls := b.take()
		if len(calls) == 0 {
			return
		}
		ctx, end := while(calls)
		b.run(ctx, calls)
		end()
		b.mu.Lock()
		for _, c := range calls {
			delete(b.underWay, c.resource)
		}
		b.mu.Unlock()
	}
}

// take returns the next batch. Without one, it ends the drain.
func (b *batches) take() (calls []*call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(c *call) bool {
		switch {
		case c.ctx.Err() != nil:
			return true
		case len(calls) == batchLimit || b.underWay[c.resource]:
			return false
		}
		calls = append(calls, c)
		return true
	})
	if len(calls) == 0 {
		b.running--
	}
	for _, c := range calls {
		b.underWay[c.resource] = true
	}
	// Free locks are taken in this order, the others after them, in the same order. Transactions that wait for each
	// other in a circle are ended by the lock timeout or by the database, and their calls are made alone.
	slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(a.resource, b.resource) })
	return calls
}

// while returns a context that ends when nobody waits for any of the calls.
func while(calls []*call) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(calls[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(calls)))
	stops := column(calls, func(c *call) func() bool {
		return context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	})
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// column returns a value of each call.
func column[T any](calls []*call, value func(c *call) T) []T {
	values := make([]T, len(calls))
	for i, c := range calls {
		values[i] = value(c)
	}
	return values
}

func resourceOf(c *call) string { return string(c.resource) }
func attemptOf(c *call) string  { return c.attempt }

// A transaction that grants nothing does not wait for the disk: a crash can undo only a place in the queue, or
// a release, after which the lease expires. Tokens are on disk before a client gets them.
const (
	withoutDisk = "(SELECT set_config('synchronous_commit', CASE WHEN EXISTS (SELECT FROM a WHERE token IS NOT NULL) " +
		"THEN current_setting('synchronous_commit') ELSE 'off' END, true) AS disk) d"

	// A call that waits for a row does not keep its connection for longer.
	bounded    = "(SELECT set_config('lock_timeout', '500 ms', true) AS bound) b"
	boundNames = "CASE WHEN b.bound IS NOT NULL THEN $1::text[] END" // so the bound is set before the call

	acquireLocks = "WITH a AS MATERIALIZED (SELECT a.* FROM " + bounded + ", leased_acquire(" + boundNames +
		", $2, $3, $4, $5::text::jsonb, $6, $7) a) SELECT token, remaining, held_by, disk FROM a, " + withoutDisk

	releaseLocks = "SELECT leased_release(" + boundNames + ", $2, $3) FROM " + bounded

	renewLocks = "SELECT r.attempt, r.locks FROM " + bounded + ", leased_renew(" + boundNames + ", $2, $3, $4) r"

	acquireAll = "WITH a AS MATERIALIZED (SELECT * FROM leased_acquires($1, $2, $3, $4, $5::text[]::jsonb[], $6, $7)) " +
		"SELECT attempt, token, remaining, held_by, disk FROM a, " + withoutDisk

	releaseAll = "WITH a AS MATERIALIZED (SELECT * FROM leased_releases($1, $2, $3)) " +
		"SELECT attempt, token, disk FROM " + withoutDisk + " LEFT JOIN a ON true"
)

// busy reports whether another transaction keeps a lock.
func busy(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "55P03"
}

// patiently makes a call in its own transaction, again and again while another transaction keeps the lock.
func (b *Backend) patiently(ctx context.Context, call func() error) error {
	for {
		select {
		case b.alone <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := call()
		<-b.alone
		if !busy(err) {
			return err
		}
	}
}

// acquireOne acquires locks in their own transaction.
func (b *Backend) acquireOne(ctx context.Context, resources []fencing.Resource, attempt string, r acquisition) answer {
	a := answer{Attempt: attempt}
	channel, _ := b.listener.channel()
	err := b.patiently(ctx, func() error {
		return b.pool.QueryRow(ctx, acquireLocks, names(resources), r.holder, r.ttl, attempt, r.metadata, r.wait,
			channel).Scan(&a.Token, &a.Remaining, &a.HeldBy, nil)
	})
	if err != nil {
		a.err = failure(ctx, "acquire", resources[0], err)
	}
	return a
}

// runAcquires makes acquires in one transaction. If the database refuses the transaction, or a lock is busy
// in another one, it makes each acquire alone.
func (b *Backend) runAcquires(ctx context.Context, calls []*call) {
	alone := func(c *call) {
		c.answer <- b.acquireOne(c.ctx, []fencing.Resource{c.resource}, c.attempt, c.acquire)
	}
	channel, _ := b.listener.channel()
	rows, err := b.pool.Query(ctx, acquireAll, column(calls, resourceOf),
		column(calls, func(c *call) string { return c.acquire.holder }),
		column(calls, func(c *call) time.Duration { return c.acquire.ttl }), column(calls, attemptOf),
		column(calls, func(c *call) *string { return c.acquire.metadata }),
		column(calls, func(c *call) *time.Duration { return c.acquire.wait }), channel)
	answers := map[string]answer{}
	if err == nil {
		var a answer
		_, err = pgx.ForEachRow(rows, []any{&a.Attempt, &a.Token, &a.Remaining, &a.HeldBy, nil}, func() error {
			answers[a.Attempt] = a
			return nil
		})
	}
	if refused(err) {
		for _, c := range calls {
			go alone(c)
		}
		return
	}
	for _, c := range calls {
		a := answers[c.attempt]
		if err != nil {
			a.err = failure(c.ctx, "acquire", c.resource, err)
		}
		c.answer <- a
	}
}

// releaseOne releases locks in their own transaction.
func (b *Backend) releaseOne(ctx context.Context, resources []fencing.Resource, attempt string, remember bool) error {
	err := b.patiently(ctx, func() error {
		_, err := b.pool.Exec(ctx, releaseLocks, names(resources), attempt, remember)
		return err
	})
	if err != nil {
		return failure(ctx, "release", resources[0], err)
	}
	return nil
}

// runReleases makes releases in one transaction, and wakes the waiters of this process that it granted a lock.
func (b *Backend) runReleases(ctx context.Context, calls []*call) {
	channel, _ := b.listener.channel()
	rows, err := b.pool.Query(ctx, releaseAll, column(calls, resourceOf), column(calls, attemptOf), channel)
	granted := map[string]int64{}
	if err == nil {
		var (
			attempt *string
			token   *int64
		)
		_, err = pgx.ForEachRow(rows, []any{&attempt, &token, nil}, func() error {
			if attempt != nil {
				granted[*attempt] = *token
			}
			return nil
		})
	}
	if refused(err) {
		for _, c := range calls {
			go func() {
				c.answer <- answer{err: b.releaseOne(c.ctx, []fencing.Resource{c.resource}, c.attempt, false)}
			}()
		}
		return
	}
	if err != nil { // the lost answer may have granted locks to waiters
		b.listener.wake("", fencing.None)
	}
	for attempt, token := range granted {
		b.listener.wake(attempt, fencing.Token(token))
	}
	for _, c := range calls {
		a := answer{}
		if err != nil {
			a.err = failure(c.ctx, "release", c.resource, err)
		}
		c.answer <- a
	}
}

// refused reports whether the database has rolled back a transaction because of one of its calls, or a lock.
func refused(err error) bool {
	var (
		e         *pgconn.PgError
		noConnect *pgconn.ConnectError
	)
	return errors.As(err, &e) && !errors.As(err, &noConnect) && !disconnects(e)
}

// grant returns the grant in an answer to a request that was sent at the given instant, or an error. It also returns
// the time until the current lease ends, which is negative if the attempt can no longer be granted.
func (a answer) grant(resource fencing.Resource, sent engine.Instant, ttl time.Duration) (engine.Grant, time.Duration,
	error) {
	switch {
	case a.err != nil:
		return engine.Grant{}, -1, a.err
	case a.Token != nil:
		// A repeated attempt may have been granted earlier: the lease lasts for what remains.
		return engine.Grant{Token: fencing.Token(*a.Token), Mode: engine.Correctness, Sent: sent.Add(*a.Remaining - ttl),
			Name: a.Attempt}, 0, nil
	case a.Remaining != nil:
		return engine.Grant{}, *a.Remaining, fmt.Errorf("acquire %q: %w by %q", string(resource), engine.ErrHeld, *a.HeldBy)
	}
	return engine.Grant{}, askAgain, fmt.Errorf("acquire %q: %w: others wait for it", string(resource), engine.ErrHeld)
}
