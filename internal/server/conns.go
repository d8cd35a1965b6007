package server

import (
	"net"
	"slices"
	"sync"
	"time"
)

// maxUndetected bounds the connections whose protocol is not known yet; half of the limit
// of all connections applies if that is more. A client shows its protocol within a few
// round trips, so under load the oldest of these connections belong to clients that never
// do. After a failover thousands of clients begin a TLS handshake at once, which takes
// seconds: with a smaller bound most of them would be closed.
const maxUndetected = 1024

// conns has the open connections of a portMux.
type conns struct {
	most int

	mu         sync.Mutex
	open       map[string]*conn // by remote address
	undetected []*conn          // oldest first
}

// conn is an open connection.
type conn struct {
	net.Conn
	owner *conns
	close sync.Once
	err   error // of Close
}

// add adds a connection. It returns nil if there are too many, and closes the oldest
// connection without a protocol if there are too many of those.
func (c *conns) add(accepted net.Conn) *conn {
	c.mu.Lock()
	if len(c.open) >= c.most {
		c.mu.Unlock()
		accepted.Close()
		return nil
	}
	added := &conn{Conn: accepted, owner: c}
	c.open[accepted.RemoteAddr().String()] = added
	c.undetected = append(c.undetected, added)
	var oldest *conn
	if len(c.undetected) > max(maxUndetected, c.most/2) {
		oldest = c.undetected[0]
	}
	c.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return added
}

// detected records that the protocol of a connection is known, or that it has ended.
// The caller holds mu.
func (c *conns) detected(one *conn) {
	if i := slices.Index(c.undetected, one); i >= 0 {
		c.undetected = slices.Delete(c.undetected, i, i+1)
	}
}

// Close closes the connection and removes it.
func (c *conn) Close() error {
	c.close.Do(func() {
		c.owner.mu.Lock()
		c.owner.detected(c)
		if address := c.RemoteAddr().String(); c.owner.open[address] == c {
			delete(c.owner.open, address)
		}
		c.owner.mu.Unlock()
		c.err = c.Conn.Close()
	})
	return c.err
}

// closeLater closes the connection of the client at this address after some time.
func (m *portMux) closeLater(client net.Addr, after time.Duration) {
	m.conns.mu.Lock()
	found := m.conns.open[client.String()]
	m.conns.mu.Unlock()
	if found != nil {
		time.AfterFunc(after, func() { found.Close() })
	}
}
