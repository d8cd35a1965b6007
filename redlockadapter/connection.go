package redlockadapter

import (
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// request is one script call, or one plain command. It is sent to several nodes
// and not changed once it is pushed.
type request struct {
	script *script
	keys   []string // without their prefix, which differs from node to node
	args   string   // encoded
	count  int      // of args
	// plain is a complete encoded command, sent instead of a script.
	plain string
	// answer is called exactly once for each node, and must not block.
	answer func(node int, r reply)
	// canceled, if not nil and true, drops the request where it was not sent yet.
	canceled *atomic.Bool
}

// newRequest returns a call of a script.
func newRequest(s *script, keys []string, args ...string) *request {
	return &request{script: s, keys: keys, args: string(appendArgs(nil, args...)), count: len(args)}
}

// encode appends the request as link's server reads it. Without byText the
// script is named by its hash.
func (r *request) encode(b []byte, k *link, byText bool) []byte {
	if r.plain != "" {
		return append(b, r.plain...)
	}
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(3+len(r.keys)+r.count), 10)
	b = append(b, "\r\n"...)
	if byText {
		b = append(b, r.script.byText...)
	} else {
		b = append(b, r.script.bySHA...)
	}
	b = appendArgs(b, strconv.Itoa(len(r.keys)))
	for _, key := range r.keys {
		if key == lifeKey {
			b = appendBulk(b, k.namespace, key)
		} else {
			b = appendBulk(b, k.prefix, key)
		}
	}
	return append(b, r.args...)
}

// A connection that failed waits before it is made again, twice as long each
// time, so that a dead node costs little.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// connection is the pipelined connection to one node. A request that finds it
// idle is written at once, by its caller. While replies are outstanding, requests
// collect and are written together: that is how concurrent callers share system
// calls and round trips. The order of requests is kept.
type connection struct {
	node *node

	wake chan struct{} // there is something to send, and no link
	done chan struct{} // closed when run has ended

	mu       sync.Mutex
	link     *link      // nil while there is none
	pending  []*request // not sent
	inflight []*request // sent; those before next were answered
	next     int
	closed   bool
	began    engine.Instant // when inflight was sent, or was last seen to be answered in part
	seen     int            // next at that time
	watch    *time.Timer    // nil if nothing is watched for a timeout

	// Only run uses these.
	failures int
	failed   engine.Instant
	lastErr  error
}

func newConnection(n *node) *connection {
	return &connection{node: n, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// push sends a request, at once or with those that are waiting. It does not wait
// for the node.
func (c *connection) push(r *request) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.answer(c.node.index, reply{err: errClosed})
		return
	}
	c.pending = append(c.pending, r)
	if c.link == nil {
		c.mu.Unlock()
		c.poke()
		return
	}
	if c.next < len(c.inflight) {
		c.mu.Unlock()
		return
	}
	c.sendPending()
}

// sendPending sends what is pending. The caller holds mu, which is unlocked;
// nothing is inflight.
func (c *connection) sendPending() {
	buffer := buffers.Get().(*[]byte)
	k, commands, dropped := c.take((*buffer)[:0])
	c.mu.Unlock()
	c.drop(dropped)
	if len(commands) > 0 {
		k.write(commands)
	}
	*buffer = commands
	buffers.Put(buffer)
}

// buffers are reused by callers that write.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// hold puts a request behind those that are waiting, and leaves the sending to
// the next push or to flush.
func (c *connection) hold(r *request) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.answer(c.node.index, reply{err: errClosed})
		return
	}
	c.pending = append(c.pending, r)
	down := c.link == nil
	c.mu.Unlock()
	if down {
		c.poke()
	}
}

// flush sends what was held.
func (c *connection) flush() {
	c.mu.Lock()
	if c.link == nil || c.next < len(c.inflight) || len(c.pending) == 0 {
		c.mu.Unlock()
		return
	}
	c.sendPending()
}

// take makes what is pending inflight and encodes it into b. The caller holds mu,
// and nothing is inflight.
func (c *connection) take(b []byte) (k *link, commands []byte, dropped []*request) {
	c.inflight, c.next = c.inflight[:0], 0
	for _, r := range c.pending {
		if r.canceled != nil && r.canceled.Load() {
			dropped = append(dropped, r)
			continue
		}
		b = r.encode(b, c.link, false)
		c.inflight = append(c.inflight, r)
	}
	clear(c.pending)
	c.pending = c.pending[:0]
	if len(c.inflight) > 0 {
		c.watchOut()
	}
	return c.link, b, dropped
}

// watchOut begins to watch for a node that does not reply. The caller holds mu.
func (c *connection) watchOut() {
	c.began, c.seen = c.node.clock.Now(), 0
	if c.watch == nil {
		c.watch = time.AfterFunc(c.node.timeout, c.overdue)
	}
}

// drop answers requests that were canceled before they were sent.
func (c *connection) drop(dropped []*request) {
	for _, r := range dropped {
		r.answer(c.node.index, reply{err: errNotSent})
	}
}

func (c *connection) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close ends the connection once what is pending was answered.
func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	if c.link != nil && c.next == len(c.inflight) {
		c.link.close()
	}
	c.mu.Unlock()
	c.poke()
	<-c.done
}

// run connects and reads, until the connection is closed. ready is called when
// the first link is made, or could not be.
func (c *connection) run(ready func()) {
	defer close(c.done)
	err := c.connect()
	ready()
	if err == nil {
		c.serve()
	}
	c.poke() // something may have been pushed meanwhile
	for range c.wake {
		for {
			c.mu.Lock()
			idle, closed := len(c.pending) == 0, c.closed
			c.mu.Unlock()
			if idle && closed {
				return
			}
			if idle {
				break
			}
			if err := c.connect(); err != nil {
				c.failPending(err)
				continue
			}
			c.serve()
		}
	}
}

// connect makes a link, unless that failed a moment ago.
func (c *connection) connect() error {
	if c.failures > 0 && c.node.clock.Now().Since(c.failed) < min(minBackoff<<min(c.failures, 6), maxBackoff) {
		return c.lastErr
	}
	k, err := c.node.dial()
	if err != nil {
		return c.fail(err)
	}
	c.mu.Lock()
	c.link = k
	c.mu.Unlock()
	return nil
}

// fail notes a failure and returns the error for requests.
func (c *connection) fail(err error) error {
	c.failures++
	c.failed = c.node.clock.Now()
	c.lastErr = errors.Join(errNodeDown, err)
	c.node.poke()
	return c.lastErr
}

// failPending answers what was not sent.
func (c *connection) failPending(err error) {
	c.mu.Lock()
	batch := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, r := range batch {
		r.answer(c.node.index, reply{err: err})
	}
}

// serve sends what has collected and reads replies, until the link breaks or the
// connection is closed.
func (c *connection) serve() {
	k := c.link // only this goroutine changes it
	buffer := make([]byte, 0, 1<<12)
	for {
		c.mu.Lock()
		if c.next == len(c.inflight) { // all are answered
			var dropped []*request
			_, buffer, dropped = c.take(buffer[:0])
			over := c.closed && len(c.inflight) == 0
			if over {
				c.link = nil
			}
			c.mu.Unlock()
			c.drop(dropped)
			if over {
				k.close()
				return
			}
			if len(buffer) > 0 {
				k.write(buffer)
			}
		} else {
			c.mu.Unlock()
		}
		got, err := readReply(k.reader)
		if err == nil {
			err = c.receive(k, got)
		}
		if err != nil {
			c.broken(k, err)
			return
		}
	}
}

// receive hands a reply to its request. The error is the end of the link.
func (c *connection) receive(k *link, got reply) error {
	var refused redisError
	failed := got.err != nil && errors.As(got.err, &refused)
	if failed && refused.ends() {
		return got.err
	}
	c.mu.Lock()
	if c.next == len(c.inflight) {
		c.mu.Unlock()
		return errProtocol
	}
	r := c.inflight[c.next]
	if failed && refused.code() == "NOSCRIPT" {
		// It was not run. Sent again with its text, behind the others.
		c.inflight = append(c.inflight, r)
		c.next++
		command := r.encode(nil, k, true)
		c.mu.Unlock()
		k.write(command)
		return nil
	}
	c.next++
	last, batch := c.next == len(c.inflight), len(c.inflight)
	c.mu.Unlock()
	c.failures = 0
	r.answer(c.node.index, got)
	if last && batch > 1 {
		runtime.Gosched() // those who were answered may have something for the next batch
	}
	return nil
}

// overdue ends a link whose node does not reply. A large batch may take longer than
// the timeout, such as the renewal of 10,000 leases: a node that has answered part of
// it gets another timeout for the rest.
func (c *connection) overdue() {
	now := c.node.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.node.timeout - now.Since(c.began)
	switch {
	case c.link == nil || c.next == len(c.inflight):
		c.watch = nil
	case left <= 0 && c.next > c.seen:
		c.began, c.seen = now, c.next
		c.watch.Reset(c.node.timeout)
	case left <= 0:
		c.watch = nil
		_ = c.link.conn.Close() // the reader sees it
	default:
		c.watch.Reset(left)
	}
}

// broken ends a link. What was sent and not answered may have been carried out.
func (c *connection) broken(k *link, err error) {
	k.close()
	c.mu.Lock()
	c.link = nil
	lost := append([]*request(nil), c.inflight[c.next:]...)
	c.inflight, c.next = nil, 0
	c.mu.Unlock()
	if len(lost) == 0 { // nobody was waiting; the next request connects again
		c.node.poke()
		return
	}
	err = c.fail(err)
	for _, r := range lost {
		r.answer(c.node.index, reply{err: err, maybe: true})
	}
}
