package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// call is an acquire or a release that waits for its answer.
type call struct {
	ctx     context.Context
	name    string // of the lock, or of all the locks of a set, one per line
	attempt string
	acquire acquisition
	try     bool // an acquire that does not wait for its lock
	// remember is for a release: a copy of the acquire may still arrive.
	remember bool
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
	Token     *fencing.Token
	Remaining *time.Duration
	HeldBy    *string
	err       error
}

const (
	batchLimit    = 256 // calls in one transaction
	batchesAtOnce = 4   // transactions at one time
	batchWorth    = 32  // calls that are worth a transaction beside another one

	// tryTime bounds how long a call that does not wait for its lock waits for another transaction.
	tryTime = 5 * time.Second

	// slowAfter is the time after which a batch probably waits for a lock.
	slowAfter = 10 * time.Millisecond
)

// batches collects the calls that arrive while others are in progress and makes them in one transaction,
// because a commit and a message cost more than a lock.
type batches struct {
	verb  string
	send  func(ctx context.Context, calls []*call) (map[string]answer, error)
	alone *alone

	mu            sync.Mutex
	waiting       []*call
	running, slow int // batches, and those that have run for slowAfter
	underWay      map[string]bool
}

// submit makes a call and returns its answer. A call for several locks gets a transaction of its own: the calls of a
// batch lock their rows one after the other, in the order of the names.
func (b *batches) submit(c *call, resources []fencing.Resource) answer {
	if len(resources) == 1 {
		c.name = string(resources[0])
		return b.do(c)
	}
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = string(r)
	}
	c.name = strings.Join(names, "\n")
	return b.doAlone(c)
}

// do makes a call in a batch and returns its answer.
func (b *batches) do(c *call) answer {
	c.answer = make(chan answer, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	b.start()
	b.mu.Unlock()
	select {
	case a := <-c.answer:
		return a
	case <-c.ctx.Done():
		return answer{err: engine.Cause(c.ctx)}
	}
}

// start sends the waiting calls in a batch. A few calls wait for the batch that is under way, unless it is slow,
// because a transaction costs as much as several calls. b.mu is locked.
func (b *batches) start() {
	prompt := b.running - b.slow
	if len(b.waiting) > 0 && b.running < batchesAtOnce && (prompt == 0 || len(b.waiting) >= batchWorth) {
		b.running++
		go b.runNext()
	}
}

// runNext runs one batch. Calls for the locks of another batch stay behind, because they would wait for its rows.
func (b *batches) runNext() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if calls := b.take(); len(calls) > 0 {
		var slow, done bool
		timer := time.AfterFunc(slowAfter, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !done {
				slow = true
				b.slow++
				b.start()
			}
		})
		b.mu.Unlock()
		ctx, end := while(calls)
		b.run(ctx, calls)
		end()
		b.mu.Lock()
		done = true
		timer.Stop()
		if slow {
			b.slow--
		}
		for _, c := range calls {
			delete(b.underWay, c.name)
		}
		defer b.start()
	}
	b.running--
}

// take returns the next batch, if there is one. b.mu is locked.
func (b *batches) take() (calls []*call) {
	b.waiting = slices.DeleteFunc(b.waiting, func(c *call) bool {
		switch {
		case c.ctx.Err() != nil:
			return true
		case len(calls) == batchLimit || b.underWay[c.name]:
			return false
		}
		calls = append(calls, c)
		return true
	})
	for _, c := range calls {
		b.underWay[c.name] = true
	}
	// All transactions lock rows in this order. A release that wakes a set, or another program, may use another order:
	// the lock timeout or the database ends transactions that wait for each other, and their calls are made alone.
	slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(a.name, b.name) })
	return calls
}

// run makes calls in one transaction. If the database refuses the transaction, or a lock is busy in another one, it
// makes each call alone.
func (b *batches) run(ctx context.Context, calls []*call) {
	answers, err := b.send(ctx, calls)
	for _, c := range calls {
		switch a := answers[c.attempt]; {
		case refused(err):
			go func() { c.answer <- b.doAlone(c) }()
		case err != nil:
			c.answer <- b.failed(c, err)
		default:
			c.answer <- a
		}
	}
}

// doAlone makes a call in its own transaction, again and again while another transaction keeps the lock. One that
// does not wait for its lock gives up after tryTime, perhaps before its first turn.
func (b *batches) doAlone(c *call) answer {
	turns := c.ctx
	if c.try {
		var end context.CancelFunc
		turns, end = context.WithTimeoutCause(c.ctx, tryTime, errCrowded)
		defer end()
	}
	kept := false
	for {
		var answers map[string]answer
		err := b.alone.do(turns, c.name, func() (err error) {
			answers, err = b.send(c.ctx, []*call{c})
			return err
		})
		switch {
		case err == nil:
			return answers[c.attempt]
		case busy(err):
			kept = true
		case kept && errors.Is(err, errCrowded):
			return b.failed(c, errBusy)
		default:
			return b.failed(c, err)
		}
	}
}

// failed returns the answer to a call that failed.
func (b *batches) failed(c *call, err error) answer {
	first, _, _ := strings.Cut(c.name, "\n")
	return answer{err: failure(c.ctx, b.verb, fencing.Resource(first), err)}
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

func nameOf(c *call) string    { return c.name }
func attemptOf(c *call) string { return c.attempt }

const (
	// A statement that waits for rows does not keep its connection, and the rows that it has locked, for longer. Each call
	// may wait for what its statement has left. The names depend on the bound, so that it is set before the call.
	boundNames = "CASE WHEN set_config('lock_timeout', greatest(1, 500 - extract(epoch FROM clock_timestamp() - " +
		"statement_timestamp()) * 1000)::int || ' ms', true) <> '' THEN string_to_array(c.names, E'\n') END"

	// A transaction that grants nothing does not wait for the disk: a crash can undo only a place in the queue, or
	// a release, after which the lease expires. Tokens are on disk before a client gets them.
	withoutDisk = "(SELECT set_config('synchronous_commit', CASE WHEN EXISTS (SELECT FROM a WHERE token IS NOT NULL) " +
		"THEN current_setting('synchronous_commit') ELSE 'off' END, true) AS disk) d"

	acquireLocks = "WITH a AS MATERIALIZED (SELECT c.attempt, a.* FROM unnest($1::text[], $2::text[], $3::interval[], " +
		"$4::text[], $5::text[], $6::interval[]) c (names, holder, ttl, attempt, metadata, wait), " +
		"leased_acquire(" + boundNames + ", c.holder, c.ttl, c.attempt, c.metadata::jsonb, c.wait, " +
		"$7) a) SELECT attempt, token, (extract(epoch FROM remaining) * 1e9)::bigint, held_by, disk FROM a, " + withoutDisk

	releaseLocks = "WITH a AS MATERIALIZED (SELECT r.next_attempt AS attempt, r.next_token AS token FROM " +
		"unnest($1::text[], $2::text[], $3::boolean[]) c (names, attempt, remember), " +
		"leased_release(" + boundNames + ", c.attempt, c.remember, $4) r) " +
		"SELECT attempt, token, disk FROM a, " + withoutDisk + " WHERE token IS NOT NULL OR disk IS NULL"

	renewLocks = "SELECT r.attempt, r.locks FROM leased_renew(CASE WHEN set_config('lock_timeout', $5::int || ' ms', " +
		"true) <> '' THEN $1::text[] END, $2, $3, $4::text::jsonb) r"
)

// A call that does not wait for its lock ends with errBusy if it has found the lock busy, and with errCrowded if it has
// had no turn. It had no effect.
var (
	errBusy    = errors.New("an open transaction keeps the lock")
	errCrowded = errors.New("too many calls wait, perhaps for locks that open transactions keep; try again")
)

// busy reports whether another transaction keeps a lock.
func busy(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "55P03"
}

// refused reports whether the database has rolled back a transaction because of one of its calls, or a lock.
func refused(err error) bool {
	var (
		e         *pgconn.PgError
		noConnect *pgconn.ConnectError
	)
	return errors.As(err, &e) && !errors.As(err, &noConnect) && !disconnects(e)
}

// acquire makes acquires in one transaction.
func (b *Backend) acquire(ctx context.Context, calls []*call) (map[string]answer, error) {
	ctx, cancel := b.pool.limit(ctx)
	defer cancel()
	channel, _ := b.listener.channel()
	rows, _ := b.pool.Query(ctx, acquireLocks, column(calls, nameOf),
		column(calls, func(c *call) string { return c.acquire.holder }),
		column(calls, func(c *call) time.Duration { return c.acquire.ttl }), column(calls, attemptOf),
		column(calls, func(c *call) *string { return c.acquire.metadata }),
		column(calls, func(c *call) *time.Duration { return c.acquire.wait }), channel)
	var (
		a         answer
		remaining *int64
	)
	answers := map[string]answer{}
	_, err := pgx.ForEachRow(rows, []any{&a.Attempt, &a.Token, &remaining, &a.HeldBy, nil}, func() error {
		a.Remaining = (*time.Duration)(remaining)
		answers[a.Attempt] = a
		return nil
	})
	return answers, err
}

// release makes releases in one transaction, and wakes the waiters of this process that it granted a lock.
func (b *Backend) release(ctx context.Context, calls []*call) (map[string]answer, error) {
	ctx, cancel := b.pool.limit(ctx)
	defer cancel()
	channel, _ := b.listener.channel()
	sent := releaseClock.Now()
	rows, _ := b.pool.Query(ctx, releaseLocks, column(calls, nameOf), column(calls, attemptOf),
		column(calls, func(c *call) bool { return c.remember }), channel)
	granted := map[string]fencing.Token{}
	var (
		attempt string
		token   fencing.Token
	)
	_, err := pgx.ForEachRow(rows, []any{&attempt, &token, nil}, func() error {
		granted[attempt] = token
		return nil
	})
	switch {
	case refused(err): // also after it has reported grants
		clear(granted)
	case err != nil: // the lost answer may have granted locks to waiters
		granted = map[string]fencing.Token{"": fencing.None}
	}
	for attempt, token := range granted {
		b.listener.wake(attempt, handoff{token, sent})
	}
	return nil, err
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
		return engine.Grant{Token: *a.Token, Mode: engine.Correctness, Sent: sent.Add(*a.Remaining - ttl),
			Name: a.Attempt}, 0, nil
	case a.Remaining != nil:
		return engine.Grant{}, *a.Remaining, fmt.Errorf("acquire %q: %w by %q", string(resource), engine.ErrHeld, *a.HeldBy)
	}
	return engine.Grant{}, askAgain, fmt.Errorf("acquire %q: %w: others wait for it", string(resource), engine.ErrHeld)
}
