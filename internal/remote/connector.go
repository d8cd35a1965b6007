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
	settings   *settings
	anyMember  bool          // any member can serve, not only the leader
	connecting chan struct{} // a mutex: held while a connection is being opened

	mu       sync.Mutex
	closed   bool
	conn     *connection
	leader   string         // the address to connect to next, empty for the next endpoint
	next     int            // the next endpoint
	openedAt engine.Instant // of conn
}

func newConnector(s *settings, next int) *connector {
	return &connector{settings: s, connecting: make(chan struct{}, 1), next: next}
}

// do makes a call on the connection in use. While the call fails without any effect, it goes
// to the member that clientcore.Members names next.
func (c *connector) do(ctx context.Context, call func(*connection) error) error {
	conn, err := c.try(ctx, call)
	if err == nil {
		return nil
	}
	search := clientcore.NewSearch(c.settings.clock.Now(), c.settings.Timeout)
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
	var redirect *wire.NotLeaderError
	if errors.As(err, &redirect) {
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

// connect returns the connection in use, or opens one.
func (c *connector) connect(ctx context.Context) (*connection, error) {
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, engine.Cause(ctx))
	}
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	c.mu.Lock()
	address := c.leader
	began := c.settings.clock.Now()
	if c.leader = ""; address == "" {
		address, c.next = c.settings.Next(began, c.next)
	}
	c.mu.Unlock()
	if err := secret.CheckAddress(address, c.settings.TLS, c.settings.Secret); err != nil { // a member sent the address
		return nil, err
	}
	conn, err := openConnection(ctx, c, address)
	c.settings.Connected(c.settings.clock.Now(), began, address, err, ctx.Err() != nil)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", wire.ErrUnreachable, address, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.close(errClosed)
		return nil, errClosed
	}
	c.conn, c.openedAt = conn, c.settings.clock.Now()
	return conn, nil
}

// current returns the connection in use, nil if there is none.
func (c *connector) current() (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, errClosed
	case c.conn == nil || c.conn.isDown():
		return nil, nil
	}
	return c.conn, nil
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

// fellSilent abandons a connection whose member is silent. Its operations are uncertain, and
// their callers repeat them at another member.
func (c *connector) fellSilent(conn *connection) {
	c.settings.FellSilent(c.settings.clock.Now(), conn.address)
	c.abandon(conn, "", ErrSilent)
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
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		conn.close(errClosed)
	}
}
