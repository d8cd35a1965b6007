package server

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// preface is how every HTTP/2 connection without TLS begins.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// greetTime bounds the time until the protocol of a connection is known.
const greetTime = 10 * time.Second

// splitter accepts connections and tells gRPC from HTTP: one that begins with
// the preface of HTTP/2, or that offers h2 alone in TLS, is gRPC. Browsers and
// curl offer http/1.1 too, and get it.
type splitter struct {
	listener net.Listener
	tls      *tls.Config
	grpc     *branch
	http     *branch

	mu       sync.Mutex
	greeting map[net.Conn]bool
	closed   bool
}

func newSplitter(l net.Listener, config *tls.Config) *splitter {
	s := &splitter{listener: l, greeting: map[net.Conn]bool{}}
	s.grpc, s.http = newBranch(s), newBranch(s)
	if config != nil {
		s.tls = config.Clone()
		s.tls.GetConfigForClient = choose(config)
	}
	return s
}

// choose answers a client with one protocol, by those that it offers.
func choose(config *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := config
		if config.GetConfigForClient != nil {
			own, err := config.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			if own != nil {
				c = own
			}
		}
		c = c.Clone()
		c.NextProtos = []string{"http/1.1"}
		if slices.Equal(hello.SupportedProtos, []string{"h2"}) {
			c.NextProtos = []string{"h2"}
		}
		return c, nil
	}
}

// run accepts until the listener is closed.
func (s *splitter) run() error {
	defer s.close()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			conn.Close()
			continue
		}
		s.greeting[conn] = true
		s.mu.Unlock()
		go s.greet(conn)
	}
}

// greet finds out the protocol of a connection and hands it on.
func (s *splitter) greet(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.greeting, conn)
	}()
	_ = conn.SetDeadline(engine.MonotonicClock().Now().Time().Add(greetTime))
	to := s.http
	var handed net.Conn
	if s.tls != nil {
		secure := tls.Server(conn, s.tls)
		if secure.Handshake() != nil {
			conn.Close()
			return
		}
		handed = secure
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			to = s.grpc
		}
	} else {
		begin, err := readPreface(conn)
		if err != nil {
			conn.Close()
			return
		}
		handed = &begun{Conn: conn, begin: begin}
		if string(begin) == preface {
			to = s.grpc
		}
	}
	_ = conn.SetDeadline(time.Time{})
	to.hand(handed)
}

// readPreface reads while the bytes may be the preface.
func readPreface(conn net.Conn) ([]byte, error) {
	buffer := make([]byte, 0, len(preface))
	for len(buffer) < len(preface) && string(buffer) == preface[:len(buffer)] {
		n, err := conn.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if err != nil {
			return nil, err
		}
	}
	return buffer, nil
}

func (s *splitter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.listener.Close()
	for conn := range s.greeting {
		conn.Close()
	}
	close(s.grpc.done)
	close(s.http.done)
}

// begun is a connection whose first bytes were read already.
type begun struct {
	net.Conn
	begin []byte
}

// Read gives the first bytes again.
func (c *begun) Read(p []byte) (int, error) {
	if len(c.begin) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.begin)
	c.begin = c.begin[n:]
	return n, nil
}

// branch is a net.Listener of the connections of one kind.
type branch struct {
	splitter *splitter
	conns    chan net.Conn
	done     chan struct{}
}

func newBranch(s *splitter) *branch {
	return &branch{splitter: s, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (b *branch) hand(conn net.Conn) {
	select {
	case b.conns <- conn:
	case <-b.done:
		conn.Close()
	}
}

// Accept waits for a connection.
func (b *branch) Accept() (net.Conn, error) {
	select {
	case conn := <-b.conns:
		return conn, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

// Close ends the whole splitter.
func (b *branch) Close() error {
	b.splitter.close()
	return nil
}

// Addr returns the listener's address.
func (b *branch) Addr() net.Addr { return b.splitter.listener.Addr() }
