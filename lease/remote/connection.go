package remote

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// messageSize is the size from which a message takes no more operations. Members
// refuse messages of more than 4 MiB.
const messageSize = 1 << 20

// connection is a connection to one member, with its session stream.
type connection struct {
	connector *connector
	address   string
	conn      *grpc.ClientConn
	leases    pb.LeaseServiceClient
	stream    pb.LeaseService_SessionClient

	down   chan struct{} // closed when the connection ends
	cancel context.CancelFunc
	once   sync.Once
	wake   chan struct{} // there are operations to send

	mu       sync.Mutex
	err      error // why the connection ended
	draining bool  // the connection closes when no operation is pending
	lastID   uint64
	out      []*pb.Operation
	pending  map[uint64]*pending
	queued   map[attemptKey]*pending       // acquires whose callers want to know that they are queued
	sessions map[engine.SessionID]*session // the sessions that are attached here
}

// pending is an operation without an answer.
type pending struct {
	answer chan *pb.Answer // has room for one
	queued func()          // of an acquire; nil if the caller does not want to know
	key    attemptKey
	urgent bool // if it is not answered in time the connection is closed
}

// attemptKey identifies an acquisition attempt.
type attemptKey struct {
	session engine.SessionID
	nonce   engine.Nonce
}

// openConnection connects to a member and opens the stream.
func openConnection(ctx context.Context, owner *connector, address string) (*connection, error) {
	conn, err := owner.settings.newConn(address)
	if err != nil {
		return nil, err
	}
	c := &connection{connector: owner, address: address, conn: conn, leases: pb.NewLeaseServiceClient(conn), down: make(chan struct{}),
		wake: make(chan struct{}, 1), pending: map[uint64]*pending{}, queued: map[attemptKey]*pending{}, sessions: map[engine.SessionID]*session{}}
	streamCtx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	defer context.AfterFunc(ctx, cancel)() // only while connecting
	limit := time.AfterFunc(connectTimeout, cancel)
	c.stream, err = c.leases.Session(streamCtx)
	if !limit.Stop() && err == nil {
		err = fmt.Errorf("not connected within %v", connectTimeout)
	}
	if err != nil {
		cancel()
		conn.Close()
		return nil, err
	}
	go c.send()
	go c.receive()
	return c, nil
}

// close ends the connection. Pending operations fail with an uncertain outcome.
func (c *connection) close(err error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		close(c.down)
		c.cancel()
		c.conn.Close()
	})
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
		go c.close(errNoAnswer)
	}
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

// send writes operations. Operations that arrive while a message is being sent share
// the next message. send lets other goroutines run as long as they add operations.
func (c *connection) send() {
	for {
		select {
		case <-c.wake:
		case <-c.down:
			return
		}
		for seen := -1; ; runtime.Gosched() {
			c.mu.Lock()
			queued := len(c.out)
			c.mu.Unlock()
			if queued == seen {
				break
			}
			seen = queued
		}
		for message := c.nextMessage(); message != nil; message = c.nextMessage() {
			if err := c.stream.Send(message); err != nil {
				return // receive gets the error
			}
		}
	}
}

// nextMessage returns the next operations to send, nil if there are none.
func (c *connection) nextMessage() *pb.SessionRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, size := 0, 0
	for n < len(c.out) && size < messageSize {
		size += proto.Size(c.out[n])
		n++
	}
	if n == 0 {
		return nil
	}
	message := &pb.SessionRequest{Operations: c.out[:n:n]}
	if c.out = c.out[n:]; len(c.out) == 0 {
		c.out = nil
	}
	return message
}

// receive delivers answers and notices.
func (c *connection) receive() {
	for {
		message, err := c.stream.Recv()
		if err != nil {
			c.close(wire.FromStatus(err))
			return
		}
		for _, n := range message.Notices {
			c.notice(n)
		}
		c.mu.Lock()
		for _, a := range message.Answers {
			if p := c.pending[a.Id]; p != nil {
				p.answer <- a
				c.drop(a.Id, p)
			}
		}
		c.mu.Unlock()
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
	p := c.queued[key]
	c.mu.Unlock()
	switch {
	case n.Lost == nil && p != nil:
		p.queued()
	case n.Lost != nil && s != nil:
		s.lose(key.nonce, wire.ToError(n.Lost))
	}
}

// do sends an operation and waits for its answer. If the answer takes longer than
// limit, the connection is closed; 0 means no limit.
func (c *connection) do(ctx context.Context, op *pb.Operation, p *pending, limit time.Duration) (*pb.Answer, error) {
	p.answer = make(chan *pb.Answer, 1)
	c.mu.Lock()
	c.lastID++
	op.Id = c.lastID
	c.pending[op.Id] = p
	if p.queued != nil {
		c.queued[p.key] = p
	}
	c.out = append(c.out, op)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-p.answer:
		return a, wire.ToError(a.Error)
	case <-c.down:
		select {
		case a := <-p.answer:
			return a, wire.ToError(a.Error)
		default:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if errors.Is(c.err, wire.ErrUnauthenticated) && !errors.Is(c.err, engine.ErrUncertain) {
			return nil, c.err // the member rejected the stream and read no operation
		}
		return nil, fmt.Errorf("%w: the connection to %s ended: %w", engine.ErrUncertain, c.address, c.err)
	case <-late:
		c.forget(op.Id, p)
		c.connector.abandon(c, "", errNoAnswer)
		return nil, fmt.Errorf("%w: %s did not answer within %v", engine.ErrUncertain, c.address, limit)
	case <-ctx.Done():
		c.forget(op.Id, p)
		if p.urgent && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.connector.abandon(c, "", errNoAnswer)
		}
		return nil, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
}

var errNoAnswer = fmt.Errorf("%w: the member does not answer", engine.ErrUncertain)

func (c *connection) forget(id uint64, p *pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id, p)
}

// drop removes an operation. The caller holds mu.
func (c *connection) drop(id uint64, p *pending) {
	delete(c.pending, id)
	if c.queued[p.key] == p {
		delete(c.queued, p.key)
	}
	c.closeIfDrained()
}
