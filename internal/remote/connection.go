package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// connection is a connection to one member, with its session stream.
type connection struct {
	connector *connector
	address   string
	conn      *grpc.ClientConn
	leases    pb.LeaseServiceClient
	stream    pb.LeaseService_SessionClient

	down   chan struct{} // closed when the connection ends
	cancel context.CancelFunc

	mu       sync.Mutex
	err      error // why the connection ended, nil while it lives
	draining bool  // the connection closes when no operation is pending
	lastID   uint64
	sender   sender
	pending  map[uint64]*pending
	queued   map[attemptKey]*pending       // acquires whose callers want to know that they are queued
	sessions map[engine.SessionID]*session // the sessions that are attached here
	// unanswered is when the oldest urgent operation was sent whose caller has left since the last answer of the
	// member. It is zero if there is none.
	unanswered engine.Instant

	received atomic.Uint64 // messages
}

// openConnection connects to a member and opens the stream.
func openConnection(ctx context.Context, owner *connector, address string) (*connection, error) {
	conn, err := owner.settings.newConn(address)
	if err != nil {
		return nil, err
	}
	c := &connection{connector: owner, address: address, conn: conn, leases: pb.NewLeaseServiceClient(conn),
		down: make(chan struct{}), sender: sender{wake: make(chan struct{}, 1)}, pending: map[uint64]*pending{},
		queued: map[attemptKey]*pending{}, sessions: map[engine.SessionID]*session{}}
	streamCtx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	defer context.AfterFunc(ctx, cancel)() // only while connecting
	connectTime := owner.settings.ConnectTime(owner.settings.clock.Now(), address)
	limit := time.AfterFunc(connectTime, cancel)
	c.stream, err = c.leases.Session(streamCtx, grpc.ForceCodecV2(codec{}))
	if !limit.Stop() && err == nil {
		err = fmt.Errorf("not connected within %v", connectTime)
	}
	if err != nil {
		cancel()
		conn.Close()
		return nil, err
	}
	go c.send()
	go c.receive()
	go c.watch()
	return c, nil
}

// close ends the connection. Pending operations fail with an uncertain outcome.
func (c *connection) close(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	close(c.down)
	for id, p := range c.pending {
		p.outcome <- outcome{err: c.failure(p)}
		delete(c.pending, id)
	}
	clear(c.queued)
	sessions := slices.Collect(maps.Values(c.sessions))
	c.mu.Unlock()
	c.cancel()
	c.conn.Close()
	for _, s := range sessions {
		s.disconnected(c)
	}
}

// failure returns the error of an operation that was not answered before the connection
// ended. The caller holds mu.
func (c *connection) failure(p *pending) error {
	switch {
	case p.late:
		return fmt.Errorf("%w: %s did not answer within %v", engine.ErrUncertain, c.address, p.limit)
	case errors.Is(c.err, wire.ErrUnauthenticated) && !errors.Is(c.err, engine.ErrUncertain):
		return c.err // the member rejected the stream and read no operation
	}
	return fmt.Errorf("%w: the connection to %s ended: %w", engine.ErrUncertain, c.address, c.err)
}

// drain closes the connection when no operation is pending.
func (c *connection) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.closeIfDrained()
}

// closeIfDrained closes a draining connection. The caller holds mu.
func (c *connection) closeIfDrained() {
	if c.draining && len(c.pending) == 0 {
		go c.close(ErrSilent)
	}
}

// explain returns the error of a call outside of the stream: gRPC reports a connection that
// was closed as a call that was cancelled.
func (c *connection) explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = wire.FromStatus(err); err != nil && c.err != nil && errors.Is(err, context.Canceled) {
		return c.failure(&pending{})
	}
	return err
}

func (c *connection) isDown() bool {
	select {
	case <-c.down:
		return true
	default:
		return false
	}
}

// rejection returns the error of a connection whose stream the member rejected, because
// it does not know the caller. Otherwise it returns nil.
func (c *connection) rejection() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.err, wire.ErrUnauthenticated) {
		return c.err
	}
	return nil
}

// receive delivers answers and notices.
func (c *connection) receive() {
	var (
		response wire.Response
		answered []*pending // of the answers with the same index; nil if no caller waits
	)
	for {
		if err := c.stream.RecvMsg(&response); err != nil {
			c.close(wire.FromStatus(err))
			return
		}
		if c.received.Add(1) == 1 {
			c.connector.settings.Answered(c.address)
		}
		for _, n := range response.Notices {
			c.notice(n)
		}
		answered = answered[:0]
		c.mu.Lock()
		if len(response.Answers) > 0 { // also to callers that have left
			c.unanswered = engine.Instant{}
		}
		for i := range response.Answers {
			p := c.pending[response.Answers[i].ID]
			if p != nil {
				c.sender.answered = max(c.sender.answered, p.end)
				c.drop(response.Answers[i].ID, p)
			}
			answered = append(answered, p)
		}
		c.mu.Unlock()
		for i, p := range answered {
			if p != nil {
				p.outcome <- outcome{answer: response.Answers[i]}
			}
		}
		clear(answered)
		clear(response.Answers)
	}
}

// notice delivers a notice: an attempt was queued, or a lease was lost. A notice with a
// malformed session id is ignored.
func (c *connection) notice(n *pb.Notice) {
	if len(n.Session) != len(engine.SessionID{}) {
		return
	}
	key := attemptKey{engine.SessionID(n.Session), engine.Nonce(n.Nonce)}
	c.mu.Lock()
	s := c.sessions[key.session]
	var queued func()
	if p := c.queued[key]; p != nil {
		queued = p.queued
	}
	c.mu.Unlock()
	switch {
	case n.Lost == nil && queued != nil:
		queued()
	case n.Lost != nil && s != nil:
		s.lose(key.nonce, wire.ToError(n.Lost))
	}
}

// do sends an operation and waits for its answer.
func (c *connection) do(ctx context.Context, op *operation) (wire.Answer, error) {
	unused := &c.connector.settings.unused
	p := unused.take()
	id, direct, err := c.add(op, p)
	if err != nil {
		unused.put(p)
		return wire.Answer{}, err
	}
	if direct {
		c.sendDirect()
	}
	var o outcome
	select {
	case o = <-p.outcome:
	case <-ctx.Done():
		if c.forget(id, p) {
			if op.urgent {
				c.leaveIfStuck(ctx, p.sent)
			}
			unused.put(p)
			return wire.Answer{}, fmt.Errorf("%w: %w", engine.ErrUncertain, engine.Cause(ctx))
		}
		o = <-p.outcome // it is being delivered
	}
	unused.put(p)
	if o.err != nil {
		return wire.Answer{}, o.err
	}
	return o.answer, o.answer.Err()
}

// add queues an operation. It reports whether the caller has to send it.
func (c *connection) add(op *operation, p *pending) (id uint64, direct bool, err error) {
	p.sent, p.quiet, p.urgent = c.connector.settings.clock.Now(), op.quiet, op.urgent
	if op.limit > 0 {
		p.limit, p.deadline = op.limit, p.sent.Add(op.limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, false, c.failure(p)
	}
	c.lastID++
	id = c.lastID
	if p.end, err = c.sender.add(op, id); err != nil {
		return 0, false, fmt.Errorf("%w: encode the operation: %w", engine.ErrInvalid, err)
	}
	c.pending[id] = p
	p.waits = op.acquire.Wait
	if op.queued != nil {
		p.queued, p.key = op.queued, attemptKey{op.session, op.acquire.Nonce}
		c.queued[p.key] = p
	}
	return id, c.sender.start(), nil
}

// watch closes the connection when the member is silent, or when it did not answer an
// operation within its limit. One timer serves all operations.
func (c *connection) watch() {
	clock := c.connector.settings.clock
	ticker := time.NewTicker(clientcore.SilenceCheckInterval)
	defer ticker.Stop()
	var silence clientcore.Silence
	for {
		select {
		case <-ticker.C:
		case <-c.down:
			return
		}
		now := clock.Now()
		silent := silence.Check(now, c.received.Load())
		switch late, quiet := c.overdue(now); {
		case late:
			c.connector.abandon(c, "", ErrSilent)
		case silent && !quiet:
			c.connector.settings.FellSilent(now, c.address)
			c.connector.abandon(c, "", ErrSilent) // its operations are uncertain, and repeated at another member
		}
	}
}

// overdue marks the operations whose limit has passed. It reports whether there are any, and whether silence is
// excused: a large answer delays the messages behind it.
func (c *connection) overdue(now engine.Instant) (late, quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		p.late = p.limit > 0 && now.Until(p.deadline) <= 0
		late, quiet = late || p.late, quiet || p.quiet
	}
	return late, quiet
}

// forget removes an operation whose caller has left. It returns false if the operation was
// answered already; its outcome is then in its channel soon.
func (c *connection) forget(id uint64, p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[id] != p {
		return false
	}
	c.drop(id, p)
	if p.urgent && c.unanswered.IsZero() {
		c.unanswered = p.sent
	}
	if c.draining && p.waits { // the caller's release goes to another member, which cannot withdraw what waits here
		go c.close(errLeft)
	}
	return true
}

// leaveIfStuck abandons the connection if the member seems to be stuck: an urgent operation that began then had no
// answer before the deadline of ctx. The deadline may be a caller's, and shorter than a round trip, so a member has at
// least a heartbeat interval. Renewals that are all shorter than that have it together.
func (c *connection) leaveIfStuck(ctx context.Context, began engine.Instant) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	now := c.connector.settings.clock.Now()
	c.mu.Lock()
	waited := now.Since(began)
	if !c.unanswered.IsZero() {
		waited = max(waited, now.Since(c.unanswered))
	}
	c.mu.Unlock()
	if waited >= clientcore.HeartbeatInterval {
		c.connector.abandon(c, "", ErrSilent)
	}
}

// drop removes an operation. The caller holds mu.
func (c *connection) drop(id uint64, p *pending) {
	delete(c.pending, id)
	if p.queued != nil && c.queued[p.key] == p {
		delete(c.queued, p.key)
	}
	c.closeIfDrained()
}
