package redisconn

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// After a failure the connection is not made again for a while, which doubles each
// time, so that a dead server costs little.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// Run connects and reads replies until Close. It calls ready once, when the first
// attempt to connect has succeeded or failed.
func (c *Conn) Run(ready func()) {
	defer close(c.done)
	err := c.connect()
	ready()
	if err == nil {
		c.serve()
	}
	c.wakeUp() // requests may have been queued meanwhile
	for range c.wake {
		for {
			c.mu.Lock()
			idle, closed := len(c.queued) == 0, c.closed
			c.mu.Unlock()
			if idle && closed {
				return
			}
			if idle {
				break
			}
			if err := c.connect(); err != nil {
				c.failQueued(err)
				continue
			}
			c.serve()
		}
	}
}

// connect makes a socket, unless that failed a moment ago.
func (c *Conn) connect() error {
	if c.failures > 0 && c.config.Clock.Now().Since(c.failedAt) < min(minBackoff<<min(c.failures, 6), maxBackoff) {
		return c.lastErr
	}
	s, err := dial(c.config, c.options)
	if err == nil && c.tooOld(s) {
		s.close()
		err = fmt.Errorf("connect to %s: it took longer than a connection may be used without a check (%v)", c.Addr(), c.config.MaxAge)
	}
	if err != nil {
		return c.fail(err)
	}
	c.mu.Lock()
	c.setSocket(s)
	c.mu.Unlock()
	return nil
}

// fail records a failure and returns the error for the requests.
func (c *Conn) fail(err error) error {
	c.failures++
	c.failedAt = c.config.Clock.Now()
	c.lastErr = errors.Join(ErrDown, err)
	c.config.Failed()
	return c.lastErr
}

// failQueued answers the requests that were not sent.
func (c *Conn) failQueued(err error) {
	c.mu.Lock()
	queued := c.queued
	c.queued = nil
	c.mu.Unlock()
	c.refused(len(queued))
	for _, r := range queued {
		r.Answer(c.config.Index, Reply{Err: err})
	}
}

// refused reports requests that failed.
func (c *Conn) refused(requests int) {
	if requests > 0 && c.config.Refused != nil {
		c.config.Refused(requests)
	}
}

// serve reads replies and sends the next batches, until the socket breaks or the
// connection is closed.
func (c *Conn) serve() {
	s := c.socket // only this goroutine changes it
	buffer := make([]byte, 0, 1<<12)
	for {
		c.mu.Lock()
		if !c.outstanding() {
			var dropped []refusal
			buffer, dropped = c.nextBatch(buffer[:0])
			finished := c.closed && len(c.batch) == 0
			if finished {
				c.setSocket(nil)
			}
			c.mu.Unlock()
			c.drop(dropped)
			if finished {
				s.close()
				return
			}
			if len(buffer) > 0 {
				s.write(buffer)
			}
		} else {
			c.mu.Unlock()
		}
		got, err := readReply(s.reader)
		if err == nil {
			err = c.receive(s, got)
		}
		if err != nil {
			c.disconnect(s, err)
			return
		}
	}
}

// receive passes a reply to its request. An error ends the socket.
func (c *Conn) receive(s *socket, got Reply) error {
	refused, failed := got.Err.(RedisError) //nolint:errorlint // readReply returns it unwrapped
	c.mu.Lock()
	if !c.outstanding() {
		c.mu.Unlock()
		return ErrProtocol
	}
	r := c.batch[c.answered]
	if failed && refused.endsConnection() && r.plain == "" { // the scripts work without the rights of plain commands
		c.mu.Unlock()
		return got.Err
	}
	noScript := failed && refused.Code() == "NOSCRIPT"
	if noScript && c.tooOld(s) {
		c.mu.Unlock()
		return ErrDown // disconnect answers it, since it counts as outstanding
	}
	c.answered++
	if noScript {
		// The script was not run. Send it again with its text, after the others.
		c.batch = append(c.batch, r)
		command := r.encode(nil, s, true)
		c.mu.Unlock()
		s.write(command)
		return nil
	}
	last, size, sent := !c.outstanding(), len(c.batch), c.sent
	c.mu.Unlock()
	c.failures = 0
	if failed {
		c.refused(1)
	}
	if last {
		c.measured(engine.MonotonicClock().Now().Since(sent)) // a suspended machine says nothing about the server
	}
	r.Answer(c.config.Index, got)
	if last && size > 1 {
		runtime.Gosched() // callers that were answered may add to the next batch
	}
	return nil
}

// disconnect drops a socket. The server may have executed the outstanding requests.
func (c *Conn) disconnect(s *socket, err error) {
	s.close()
	c.mu.Lock()
	c.setSocket(nil)
	lost := append([]*Request(nil), c.batch[c.answered:]...)
	c.batch, c.answered = nil, 0
	c.mu.Unlock()
	if len(lost) == 0 { // no failure: the next request connects at once
		c.config.Failed()
		return
	}
	err = c.fail(err)
	c.refused(len(lost))
	for _, r := range lost {
		r.Answer(c.config.Index, Reply{Err: err, MaybeExecuted: true})
	}
}
