package remote_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease/engine"
)

// network connects a client with members in the memory of the test, so that the test can run
// in virtual time.
type network struct {
	mu    sync.Mutex
	hosts map[string]*host
}

// host is the network side of a member.
type host struct {
	*bufconn.Listener
	address string

	mu       sync.Mutex
	resumed  chan struct{} // closed unless the member is stopped
	dark     bool          // connections to the address are not answered at all
	refuses  bool          // connections to the address are refused
	dialTime time.Duration // until they are accepted or refused
	dials    int
}

func newNetwork() *network { return &network{hosts: map[string]*host{}} }

// start starts a member at an address.
func (n *network) start(t *testing.T, address string) (*member, *host) {
	t.Helper()
	h := &host{Listener: bufconn.Listen(1 << 16), address: address, resumed: make(chan struct{})}
	close(h.resumed)
	n.mu.Lock()
	n.hosts[address] = h
	n.mu.Unlock()
	m := serveMember(t, h)
	m.address = address
	return m, h
}

// config makes a backend use the network.
func (n *network) config() remote.Config {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		h := n.hosts[address]
		n.mu.Unlock()
		h.mu.Lock()
		h.dials++
		dark, refuses, takes := h.dark, h.refuses, h.dialTime
		h.mu.Unlock()
		if dark {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if err := engine.Sleep(ctx, takes); err != nil {
			return nil, err
		}
		if refuses {
			return nil, syscall.ECONNREFUSED
		}
		conn, err := h.DialContext(ctx)
		return &hostConn{Conn: conn, host: h, closed: make(chan struct{})}, err
	}
	return remote.Config{Dial: []grpc.DialOption{grpc.WithContextDialer(dial)}}
}

// stop stops the member like SIGSTOP: the kernel accepts its connections and what is sent on
// them, and nothing comes back.
func (h *host) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resumed = make(chan struct{})
}

// resume continues the member.
func (h *host) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.resumed)
}

// vanish makes the address answer nothing.
func (h *host) vanish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dark = true
}

// dialed returns the number of tries to connect to the hosts.
func (n *network) dialed() (dials int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.mu.Lock()
		dials += h.dials
		h.mu.Unlock()
	}
	return dials
}

// wait waits until the member is running.
func (h *host) wait(closed <-chan struct{}) error {
	h.mu.Lock()
	resumed := h.resumed
	h.mu.Unlock()
	select {
	case <-resumed:
		return nil
	case <-closed:
		return net.ErrClosed
	}
}

// hostConn is the client's end of a connection to a host.
type hostConn struct {
	net.Conn
	host   *host
	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex
	kept []byte // sent while the member was stopped
}

// Read returns what the member has sent, when it is running.
func (c *hostConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if waitErr := c.host.wait(c.closed); waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// Write sends b when the member is running, and returns at once.
func (c *hostConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) == 0 {
		go c.deliver()
	}
	c.kept = append(c.kept, b...)
	return len(b), nil
}

func (c *hostConn) deliver() {
	if c.host.wait(c.closed) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Conn.Write(c.kept) // a broken connection shows in Read
	c.kept = nil
}

// Close closes the connection.
func (c *hostConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
