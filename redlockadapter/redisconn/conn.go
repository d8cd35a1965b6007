package redisconn

import (
	"context"
	"errors"
	"fmt"
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
	// Timeout bounds the wait for a reply.
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
	// Replied, if not nil, is called when the last request of a batch is answered, with
	// the time since the batch was sent. Refused, if not nil, is called with the number
	// of requests that the server answered with an error, or not at all. Both must not
	// block.
	Replied func(took time.Duration)
	Refused func(requests int)
}

// Conn is a pipelined connection to one server. A request that finds it idle is
// written at once, on the caller's goroutine. While replies are outstanding, requests
// queue up, and are then written as one batch: so concurrent callers share system
// calls and round trips. Requests keep their order. Methods may be called concurrently.
type Conn struct {
	config  Config
	options *redis.Options

	wake chan struct{} // a request is queued, and there is no socket
	done chan struct{} // closed when Run has ended

	server    atomic.Pointer[string] // the connected run of the server; nil while disconnected
	roundTrip atomic.Int64           // nanoseconds, smoothed; Run writes it

	mu       sync.Mutex
	socket   *socket    // nil while disconnected
	queued   []*Request // not sent
	batch    []*Request // sent together
	answered int        // requests of the batch that are answered
	closed   bool
	sent     engine.Instant // when the batch was sent
	timer    *time.Timer    // runs while a batch is outstanding; else nil
	progress engine.Instant // when the batch was sent, or was last seen to advance
	seen     int            // answered at that time

	// Used by Run only.
	failures int
	failedAt engine.Instant
	lastErr  error
}

// New returns a connection that Run will make.
func New(config Config) *Conn {
	return &Conn{config: config, options: options(config), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// options returns the settings of go-redis, which makes the network connection.
func options(config Config) *redis.Options {
	o := *config.Options
	o.Protocol = 2
	// A script that go-redis repeats could arrive after its release.
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = config.Timeout, config.Timeout, config.Timeout, config.Timeout
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
	if server := c.server.Load(); server != nil {
		return *server
	}
	return ""
}

// RoundTrip returns the time that the server took to answer recent batches, 0 before the
// first one.
func (c *Conn) RoundTrip() time.Duration { return time.Duration(c.roundTrip.Load()) }

// measured records the round trip of a batch.
func (c *Conn) measured(took time.Duration) {
	smoothed := time.Duration(c.roundTrip.Load())
	c.roundTrip.Store(int64(smoothed + (took-smoothed)/4))
	if c.config.Replied != nil {
		c.config.Replied(took)
	}
}

// setSocket replaces the socket. The caller holds mu.
func (c *Conn) setSocket(s *socket) {
	c.socket = s
	c.server.Store(nil)
	if s != nil {
		c.server.Store(&s.server)
	}
}

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

// Flush sends the queued requests, unless a batch is outstanding: they follow it then.
func (c *Conn) Flush() {
	c.mu.Lock()
	if c.socket == nil {
		c.mu.Unlock()
		c.wakeUp()
		return
	}
	if c.outstanding() || len(c.queued) == 0 {
		c.mu.Unlock()
		return
	}
	buffer := buffers.Get().(*[]byte)
	s := c.socket
	commands, dropped := c.nextBatch((*buffer)[:0])
	c.mu.Unlock()
	c.drop(dropped)
	if len(commands) > 0 {
		s.write(commands)
	}
	*buffer = commands
	buffers.Put(buffer)
}

// buffers are reused by callers that write.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// outstanding reports whether a batch waits for replies. The caller holds mu.
func (c *Conn) outstanding() bool { return c.answered < len(c.batch) }

// nextBatch makes the queued requests the batch, except for those that must not be sent,
// encodes them into b, and starts the timeout. Requests stay in the queue if the connection
// is too old; it is made again. The caller holds mu; no batch is outstanding.
func (c *Conn) nextBatch(b []byte) (commands []byte, dropped []refusal) {
	c.batch, c.answered = c.batch[:0], 0
	if len(c.queued) == 0 {
		return b, nil
	}
	if c.tooOld(c.socket) {
		c.socket.hangUp()
		return b, nil
	}
	for _, r := range c.queued {
		if err := r.refused(c.config.Index, c.socket.server); err != nil {
			dropped = append(dropped, refusal{r, err})
			continue
		}
		b = r.encode(b, c.socket, false)
		c.batch = append(c.batch, r)
	}
	clear(c.queued)
	c.queued = c.queued[:0]
	if len(c.batch) > 0 {
		c.sent = c.config.Clock.Now()
		c.progress, c.seen = c.sent, 0
		if c.timer == nil {
			c.timer = time.AfterFunc(c.config.Timeout, c.checkTimeout)
		}
	}
	return b, dropped
}

// tooOld reports whether the address of a socket was not checked for too long.
func (c *Conn) tooOld(s *socket) bool { return c.config.Clock.Now().Since(s.checked) > c.config.MaxAge }

// refusal is a request that must not be sent, and why.
type refusal struct {
	request *Request
	err     error
}

// drop answers requests that were not sent.
func (c *Conn) drop(refused []refusal) {
	for _, r := range refused {
		r.request.Answer(c.config.Index, Reply{Err: r.err})
	}
}

// checkTimeout closes the socket of a server that does not reply. A large batch, such
// as the renewal of 10,000 leases, may take longer than the timeout: a server that
// answered part of it gets another timeout for the rest.
func (c *Conn) checkTimeout() {
	now := c.config.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.config.Timeout - now.Since(c.progress)
	switch {
	case c.socket == nil || !c.outstanding():
		c.timer = nil
	case left <= 0 && c.answered > c.seen:
		c.progress, c.seen = now, c.answered
		c.timer.Reset(c.config.Timeout)
	case left <= 0:
		c.timer = nil
		c.socket.hangUp()
	default:
		c.timer.Reset(left)
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
		return Reply{}, fmt.Errorf("%s: %w", c.Addr(), context.Cause(ctx))
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
	c.mu.Lock()
	s := c.socket
	c.mu.Unlock()
	if s == nil {
		return nil // the next request connects, which checks the server
	}
	began := c.config.Clock.Now()
	server, err := probe(ctx, c.config, c.options)
	if err != nil && !errors.Is(err, ErrSetup) {
		return err // the connection is not used for longer than MaxAge
	}
	if err == nil && server == s.server {
		c.mu.Lock()
		s.checked = began
		c.mu.Unlock()
		return nil
	}
	c.mu.Lock()
	s.checked = engine.Instant{} // requests wait for the next connection
	c.mu.Unlock()
	s.hangUp()
	return err
}

// Close ends the connection after the queued requests are answered.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	if c.socket != nil && !c.outstanding() {
		c.socket.hangUp()
	}
	c.mu.Unlock()
	c.wakeUp()
	<-c.done
}

// wakeUp has Run look at the queue.
func (c *Conn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
