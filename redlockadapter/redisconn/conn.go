package redisconn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leased-project/leased/lease/engine"
)

// Config configures a Conn.
type Config struct {
	// Options name the server, and how to connect to it. Retries, timeouts and pool
	// are overridden.
	Options *redis.Options
	// Index is passed to Request.Answer.
	Index int
	// Prefix begins the name of every key.
	Prefix string
	// Timeout bounds the wait for the replies to a batch.
	Timeout time.Duration
	// MaxAge is the time for which a connection is used after a check that the address
	// still leads to its server. It is then made again, which is such a check: after a
	// pause of this process, nothing is sent to a server that has lost the address.
	MaxAge time.Duration
	// MaxSkew bounds the difference between the clocks of the server and of this process.
	MaxSkew time.Duration
	// Clock must advance while the machine is suspended.
	Clock engine.Clock
	// Preload are the scripts to load on every new connection.
	Preload []*Script
	// Servers is shared by all connections of a fleet.
	Servers *Servers
	// Failed is called when the connection breaks or cannot be made. It must not block.
	Failed func()
	// Replied, if not nil, is called when a batch of requests is answered, with the time
	// since the batch was sent. Refused, if not nil, is called with the number of requests
	// that the server answered with an error, or not at all. Both must not block.
	Replied func(took time.Duration)
	Refused func(requests int)
}

const (
	// maxBatch bounds the requests that are sent together. The timeout is for a whole batch, and the
	// renewal of 10,000 leases may take longer.
	maxBatch = 512
	// After a failure the connection is not made again for a while. That time doubles with
	// each failure, so a dead server costs little.
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// Conn is a connection to one server that is shared by many callers. While a batch of requests is
// outstanding, further requests queue up, and are then sent as one pipeline of go-redis: so
// concurrent callers share system calls and round trips. Requests keep their order. Methods may
// be called concurrently.
type Conn struct {
	config  Config
	options *redis.Options

	wake      chan struct{}          // a request is queued, or the connection is closed
	done      chan struct{}          // closed when Run has ended
	socket    atomic.Pointer[socket] // nil while disconnected; Run writes it
	roundTrip atomic.Int64           // nanoseconds, smoothed; Run writes it

	mu     sync.Mutex
	queued []*Request // not sent
	closed bool

	// Used by Run only.
	failures int
	failedAt engine.Instant
	lastErr  error
}

// New returns a connection that Run will make.
func New(config Config) *Conn {
	return &Conn{config: config, options: options(config), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// options returns the settings of go-redis.
func options(config Config) *redis.Options {
	o := *config.Options
	o.Protocol = 2
	// A script that go-redis repeats could arrive after its release.
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.PoolTimeout = config.Timeout, config.Timeout
	o.ReadTimeout, o.WriteTimeout = config.Timeout, config.Timeout
	o.DialerRetries = 1
	o.PoolSize, o.MaxConcurrentDials = 1, 1
	o.PipelinePoolSize = -1
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// Addr returns the address of the server.
func (c *Conn) Addr() string { return c.options.Addr }

// NewClient returns a go-redis client of the same server, for subscriptions.
func (c *Conn) NewClient() *redis.Client { return redis.NewClient(c.options) }

// Server returns the run of the connected server, or "" without a connection. A request on
// a Conn without one waits until it is made, or fails.
func (c *Conn) Server() string {
	if s := c.socket.Load(); s != nil {
		return s.server
	}
	return ""
}

// RoundTrip returns the time that the server took to answer recent batches, 0 before the
// first one.
func (c *Conn) RoundTrip() time.Duration { return time.Duration(c.roundTrip.Load()) }

// Send sends a request, at once or with the next batch. It does not wait for a reply.
func (c *Conn) Send(r *Request) {
	if c.Enqueue(r) {
		c.Flush()
	}
}

// Enqueue queues a request. The next Send or Flush sends it. It returns false, after
// it called Answer, if the connection is closed.
func (c *Conn) Enqueue(r *Request) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.Answer(c.config.Index, Reply{Err: ErrClosed})
		return false
	}
	c.queued = append(c.queued, r)
	c.mu.Unlock()
	return true
}

// Flush sends the queued requests, after the batch that is outstanding.
func (c *Conn) Flush() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run connects, and sends requests until Close. It calls ready once, when the first attempt
// to connect has succeeded or failed.
func (c *Conn) Run(ready func()) {
	defer close(c.done)
	_, _ = c.connected() // the first request tries again
	ready()
	for range c.wake {
		batch, closed := c.take()
		for ; len(batch) > 0; batch, closed = c.take() {
			c.exchange(batch)
		}
		if closed {
			c.disconnect()
			return
		}
	}
}

// take removes the next batch from the queue.
func (c *Conn) take() (batch []*Request, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queued), maxBatch)
	batch, c.queued = c.queued[:n:n], c.queued[n:]
	if len(c.queued) == 0 {
		c.queued = nil // not to keep answered requests alive
	}
	return batch, c.closed
}

// connected returns the socket. It makes a new one if there is none, or if the address of the
// present one was not checked for too long, unless that failed a moment ago.
func (c *Conn) connected() (*socket, error) {
	if s := c.socket.Load(); s != nil {
		if !c.tooOld(s) {
			return s, nil
		}
		c.disconnect()
	}
	if c.failures > 0 && c.config.Clock.Now().Since(c.failedAt) < min(minBackoff<<min(c.failures, 6), maxBackoff) {
		return nil, c.lastErr
	}
	s, err := dial(c.config, c.options)
	if err == nil && c.tooOld(s) {
		s.close()
		err = fmt.Errorf("connect to %s: it took longer than a connection may be used without a check (%v)",
			c.Addr(), c.config.MaxAge)
	}
	if err != nil {
		return nil, c.fail(err)
	}
	c.socket.Store(s)
	return s, nil
}

// tooOld reports whether the address of a socket was not checked for too long.
func (c *Conn) tooOld(s *socket) bool {
	checked := s.checked.Load()
	return checked == nil || c.config.Clock.Now().Since(*checked) > c.config.MaxAge
}

// fail records a failure and returns the error for the requests.
func (c *Conn) fail(err error) error {
	c.failures++
	c.failedAt = c.config.Clock.Now()
	c.lastErr = errors.Join(ErrDown, err)
	c.config.Failed()
	return c.lastErr
}

// disconnect drops the socket.
func (c *Conn) disconnect() {
	if s := c.socket.Swap(nil); s != nil {
		s.close()
	}
}

// exchange sends requests as one pipeline, and passes the replies to them.
func (c *Conn) exchange(batch []*Request) {
	s, err := c.connected()
	if err != nil {
		c.refused(len(batch))
		for _, r := range batch {
			r.Answer(c.config.Index, Reply{Err: err})
		}
		return
	}
	sent := batch[:0]
	for _, r := range batch {
		if err := r.refused(c.config.Index, s.server); err != nil {
			r.Answer(c.config.Index, Reply{Err: err})
		} else {
			sent = append(sent, r)
		}
	}
	if len(sent) == 0 {
		return
	}
	began := engine.MonotonicClock().Now() // a suspended machine says nothing about the server
	replies, err := s.call(sent, false)
	if took := engine.MonotonicClock().Now().Since(began); err == nil {
		c.measured(took)
	}
	c.answer(s, sent, replies, err)
	if len(sent) > 1 {
		runtime.Gosched() // callers that were answered may add to the next batch
	}
}

// measured records the round trip of a batch.
func (c *Conn) measured(took time.Duration) {
	smoothed := c.RoundTrip()
	c.roundTrip.Store(int64(smoothed + (took-smoothed)/4))
	if c.config.Replied != nil {
		c.config.Replied(took)
	}
}

// answer passes replies to their requests. A request whose script the server does not know is
// sent again with its text. err is why the connection cannot be used any more.
func (c *Conn) answer(s *socket, sent []*Request, replies []Reply, err error) {
	c.failures = 0
	if err != nil {
		c.disconnect()
		err = c.fail(err)
	}
	var unknown []*Request
	for i, r := range sent {
		got := replies[i]
		switch {
		case got.MaybeExecuted && err != nil:
			got.Err = err
		case got.noScript() && (err != nil || c.tooOld(s)):
			got.Err = ErrDown
		case got.noScript():
			unknown = append(unknown, r)
			continue
		}
		if got.Err != nil {
			c.refused(1)
		}
		r.Answer(c.config.Index, got)
	}
	if len(unknown) > 0 {
		replies, err := s.call(unknown, true)
		c.answer(s, unknown, replies, err)
	}
}

// refused reports requests that failed.
func (c *Conn) refused(requests int) {
	if requests > 0 && c.config.Refused != nil {
		c.config.Refused(requests)
	}
}

// Do sends a request and waits for the reply.
func (c *Conn) Do(ctx context.Context, r *Request) (Reply, error) {
	answered := make(chan Reply, 1)
	r.Answer = func(_ int, got Reply) { answered <- got }
	c.Send(r)
	select {
	case got := <-answered:
		if got.Err != nil {
			return got, fmt.Errorf("%s: %w", c.Addr(), got.Err)
		}
		return got, nil
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("%s: %w", c.Addr(), engine.Cause(ctx))
	}
}

// Bound sends requests to one run of a server. A connection to another one answers ErrLife.
type Bound struct {
	*Conn
	servers []string
}

// At returns the connection for requests to one run of the server.
func (c *Conn) At(server string) Bound {
	servers := make([]string, c.config.Index+1)
	servers[c.config.Index] = server
	return Bound{c, servers}
}

// Do sends a request and waits for the reply.
func (b Bound) Do(ctx context.Context, r *Request) (Reply, error) {
	r.Servers = b.servers
	return b.Conn.Do(ctx, r)
}

// Info asks the server for INFO.
func (b Bound) Info(ctx context.Context) (Info, error) {
	got, err := b.Do(ctx, NewCommand("info"))
	if err != nil {
		return nil, err
	}
	return parseInfo(got.Word(0)), nil
}

// Verify asks the server that the address leads to now, over a new connection. It
// disconnects if that is another one than the connected server, or another run of it, or
// one that must not be a node. On the open connection the old server would answer for
// itself.
func (c *Conn) Verify(ctx context.Context) error {
	s := c.socket.Load()
	if s == nil {
		return nil // the next request connects, which checks the server
	}
	began := c.config.Clock.Now()
	server, err := probe(ctx, c.config, c.options)
	switch {
	case err != nil && !errors.Is(err, ErrSetup):
		return err // the connection is not used for longer than MaxAge
	case err == nil && server == s.server:
		s.checked.Store(&began)
		return nil
	}
	s.checked.Store(nil) // requests wait for the next connection
	s.close()            // with a batch that is outstanding
	return err
}

// Close ends the connection after the queued requests are answered.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Flush()
	<-c.done
}
