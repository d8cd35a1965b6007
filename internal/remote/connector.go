package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// minStay is how long a member that cannot serve is kept at least, so that concurrent
// callers that all fail do not reconnect each time.
const minStay = time.Second

// connector keeps one connection to a member, and searches for the member when there
// is none.
type connector struct {
	settings  *settings
	anyMember bool // any member can serve, not only the leader

	mu       sync.Mutex
	closed   bool
	conn     *connection
	opening  *opening       // the try to open conn that is under way, nil if there is none
	leader   string         // the address to connect to next, empty for the next endpoint
	next     int            // the next endpoint
	openedAt engine.Instant // of conn
}

// opening is a try to open a connection. All callers that need one share it: if each made a try of its own, one after
// the other, many callers would wait for minutes for a member that does not answer.
type opening struct {
	address string
	cancel  context.CancelFunc
	done    chan struct{} // closed when the try has ended

	conn *connection // set before done is closed, unless err is
	err  error
}

func newConnector(s *settings, next int) *connector { return &connector{settings: s, next: next} }

// do makes a call on the connection in use. While the call fails without any effect, it goes
// to the member that clientcore.Members names next.
func (c *connector) do(ctx context.Context, call func(*connection) error) error {
	began := c.settings.clock.Now()
	conn, err := c.try(ctx, call)
	if err == nil {
		return nil
	}
	if conn != nil { // the call may have waited for its lock, which is no part of the search
		began = c.settings.clock.Now()
	}
	search := clientcore.NewSearch(began, c.settings.Timeout)
	for err != nil {
		switch {
		case ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ctx.Err()):
			return fmt.Errorf("%w (last: %w)", engine.Cause(ctx), err)
		case ctx.Err() != nil, errors.Is(err, errClosed):
			return err
		}
		turn := c.settings.Missed(c.settings.clock.Now(), search, missOf(conn, err))
		if turn.Leave {
			c.abandon(conn, turn.Leader, err)
		}
		if !turn.Again || turn.Pause > 0 && engine.Sleep(ctx, turn.Pause) != nil {
			return turn.Err
		}
		conn, err = c.try(ctx, call)
	}
	return nil
}

// missOf describes a try that failed. conn is nil if the member could not be reached.
func missOf(conn *connection, err error) clientcore.Miss {
	miss := clientcore.Miss{Reached: conn != nil, Again: errors.Is(err, wire.ErrUnreachable),
		Rejected: errors.Is(err, wire.ErrUnauthenticated), Err: err}
	if conn != nil {
		miss.Address = conn.address
	}
	if redirect, ok := errors.AsType[*wire.NotLeaderError](err); ok {
		miss.Redirected, miss.Leader = true, redirect.Leader
	}
	return miss
}

// try makes a call once. The connection is nil if the member could not be reached. If the
// member cannot serve, the next call uses another one: perhaps only this member cannot reach
// the Redis nodes.
func (c *connector) try(ctx context.Context, call func(*connection) error) (*connection, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err = call(conn); err == nil {
		return conn, nil
	}
	if rejected := conn.rejection(); rejected != nil {
		err = rejected // the call failed because the connection was closed
	}
	var migrating *engine.MigratingError
	uncertain := errors.Is(err, engine.ErrUncertain) && ctx.Err() == nil
	if c.anyMember && (wire.KindOf(err).Code == wire.CodeUnavailable || uncertain) && !errors.As(err, &migrating) {
		c.moveOn(conn)
	}
	return conn, err
}

// connect returns the connection in use, or waits for the try to open one.
func (c *connector) connect(ctx context.Context) (*connection, error) {
	conn, o, err := c.current()
	if conn != nil || err != nil {
		return conn, err
	}
	select {
	case <-o.done:
		return o.conn, o.err
	case <-ctx.Done(): // the try goes on: calls that are all shorter than it connect together
		return nil, fmt.Errorf("%w at %s: still connecting", wire.ErrUnreachable, o.address)
	}
}

// current returns the connection in use. If there is none it returns the try to open one, which it begins unless one is
// under way.
func (c *connector) current() (*connection, *opening, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, nil, errClosed
	case c.conn != nil && !c.conn.isDown():
		return c.conn, nil, nil
	case c.opening != nil:
		return nil, c.opening, nil
	}
	address := c.leader
	began := c.settings.clock.Now()
	if c.leader = ""; address == "" {
		address, c.next = c.settings.Next(began, c.next)
	}
	if err := secret.CheckAddress(address, c.settings.TLS, c.settings.Secret); err != nil { // a member sent the address
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background()) // until close
	c.opening = &opening{address: address, cancel: cancel, done: make(chan struct{})}
	go c.open(ctx, c.opening, began)
	return nil, c.opening, nil
}

// open opens a connection, and ends the try.
func (c *connector) open(ctx context.Context, o *opening, began engine.Instant) {
	conn, err := openConnection(ctx, c, o.address)
	now := c.settings.clock.Now()
	c.settings.Connected(now, began, o.address, err, ctx.Err() != nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		if o.err = errClosed; conn != nil {
			conn.close(errClosed)
		}
	case err != nil:
		o.err = fmt.Errorf("%w at %s: %w", wire.ErrUnreachable, o.address, err)
	default:
		o.conn, c.conn, c.openedAt = conn, conn, now
	}
	o.cancel()
	c.opening = nil
	close(o.done)
}

// abandon closes a connection. leader is the address to connect to next. If it is empty, the
// next endpoint is that of another member.
func (c *connector) abandon(conn *connection, leader string, why error) {
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
		c.leader = leader
		if leader == "" && c.settings.endpoints[c.next%len(c.settings.endpoints)] == conn.address {
			c.next++
		}
	}
	c.mu.Unlock()
	conn.close(why)
}

// moveOn makes the next call use another member, because this one cannot serve.
// Operations in flight on the connection continue.
func (c *connector) moveOn(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn || len(c.settings.endpoints) == 1 || c.settings.clock.Now().Since(c.openedAt) < minStay {
		return
	}
	c.conn = nil
	conn.drain()
}

// close closes the connection for good.
func (c *connector) close() {
	c.mu.Lock()
	c.closed = true
	if c.opening != nil {
		c.opening.cancel()
	}
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		conn.close(errClosed)
	}
}
