package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// listener wakes waiters with LISTEN, on its own connection, while there are any. A
// notification is a hint: waiters also ask without one.
type listener struct {
	pool   *database
	logger *slog.Logger
	name   string        // of the channel
	idle   time.Duration // the time without waiters after which the connection is given back
	pause  time.Duration // after a failure
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	waiters   map[string]chan handoff // by attempt
	running   bool
	listening bool // notifications arrive
	warned    bool
}

func newListener(pool *database, logger *slog.Logger) *listener {
	l := &listener{pool: pool, logger: logger, name: "leased_" + engine.NewSessionID().String(), idle: 30 * time.Second,
		pause: 5 * time.Second, waiters: map[string]chan handoff{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *listener) close() {
	l.mu.Lock() // add starts nothing from now on
	l.cancel()
	l.mu.Unlock()
	l.done.Wait()
}

// channel returns the channel to notify, and whether notifications arrive.
func (l *listener) channel() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.listening
}

// handoff tells a waiter its token, or None when it should ask again.
type handoff struct {
	token fencing.Token
	// sent is a moment before the release that granted the lock, by releaseClock. The answer of that release may be late.
	sent engine.Instant
}

// releaseClock is the clock of handoffs. The sessions of a backend may have other clocks.
var releaseClock = engine.SystemClock()

// add returns a channel that wakes the attempt. done removes the channel.
func (l *listener) add(attempt string) (woken <-chan handoff, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan handoff, 1)
	l.waiters[attempt] = c
	if !l.running && l.ctx.Err() == nil {
		l.running = true
		l.done.Go(l.run)
	}
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiters, attempt)
	}
}

// wake wakes one waiter, or all of them if the attempt is empty.
func (l *listener) wake(attempt string, h handoff) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wake := func(c chan handoff) {
		select {
		case c <- h:
		default:
		}
	}
	if c, ok := l.waiters[attempt]; ok {
		wake(c)
	}
	if attempt == "" {
		for _, c := range l.waiters {
			wake(c)
		}
	}
}

// run listens until there are no waiters. After a failure it pauses first.
func (l *listener) run() {
	for running := true; running; {
		if err := l.listen(); err != nil {
			l.warn(err)
			select {
			case <-time.After(l.pause):
			case <-l.ctx.Done():
			}
		}
		l.mu.Lock()
		l.running = len(l.waiters) > 0 && l.ctx.Err() == nil
		running = l.running
		l.mu.Unlock()
	}
}

// warn logs once that notifications never arrive.
func (l *listener) warn(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if impossible(err) && !l.warned && l.ctx.Err() == nil {
		l.warned = true
		l.logger.Warn("waiters ask the database again and again, because notifications do not arrive; "+
			"give them a connection that is not pooled by transaction", "err", err)
	}
}

// impossible reports whether notifications can never arrive on these connections, unlike after the
// loss of a connection.
func impossible(err error) bool {
	var (
		refused   *pgconn.PgError
		noConnect *pgconn.ConnectError
	)
	return errors.Is(err, errPooled) || errors.Is(err, errSilent) ||
		errors.As(err, &refused) && !errors.As(err, &noConnect) && !disconnects(refused)
}

var (
	errPooled = errors.New("a pooler gives each transaction another connection to the database")
	errSilent = errors.New("a test notification did not arrive")
)

// listen takes a connection and wakes waiters until it fails, or until nobody has waited for
// some time.
func (l *listener) listen() error {
	limited, cancel := l.pool.limit(l.ctx)
	defer cancel()
	pooled, err := l.pool.Acquire(limited)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // LISTEN belongs to the connection
	defer conn.Close(context.Background())
	if err := l.checkSession(limited, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(limited, "LISTEN "+l.name); err != nil {
		return err
	}
	if _, err := l.pool.Exec(limited, "SELECT pg_notify($1, '')", l.name); err != nil {
		return err
	}
	limit := 2 * time.Second // for the test notification
	for {
		ctx, cancel := context.WithTimeout(l.ctx, limit)
		n, err := conn.WaitForNotification(ctx)
		lost := err != nil && (l.ctx.Err() != nil || ctx.Err() == nil)
		cancel()
		if err != nil && !lost { // a connection may end without a word
			ctx, cancel := l.pool.limit(l.ctx)
			lost = conn.Ping(ctx) != nil
			cancel()
		}
		l.mu.Lock()
		silent := !l.listening
		waiting := len(l.waiters) > 0
		// A waiter that is added after this polls until run listens again.
		l.listening = err == nil || l.listening && waiting && !lost
		l.mu.Unlock()
		switch {
		case err == nil:
			limit = l.idle
			l.wake(n.Payload, handoff{}) // the test wakes all: they ask again with notifications
		case lost:
			return err
		case silent:
			return errSilent
		case !waiting:
			return nil
		}
	}
}

// checkSession returns errPooled if other clients use the session of conn between its transactions: they would get the
// notifications. If one arrives during the server_reset_query of PgBouncer 1.18, the next clients of that session get
// the answers to others.
func (l *listener) checkSession(ctx context.Context, conn *pgx.Conn) error {
	session := func(row pgx.Row) (pid uint32, err error) {
		err = row.Scan(&pid)
		return pid, err
	}
	const query = "SELECT pg_backend_pid()"
	for range 5 {
		first, err := session(conn.QueryRow(ctx, query))
		if err != nil || first == conn.PgConn().PID() { // there is no pooler
			return err
		}
		second, err := session(conn.QueryRow(ctx, query))
		if err != nil {
			return err
		}
		other, err := session(l.pool.QueryRow(ctx, query))
		if err != nil {
			return err
		}
		if first != second || second == other {
			return errPooled
		}
	}
	return nil
}
