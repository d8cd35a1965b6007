package server

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// preface is the first line of every HTTP/2 connection without TLS.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// acceptPause is the pause after a connection could not be accepted.
const acceptPause = 50 * time.Millisecond

// detectTimeout bounds the time until the protocol of a connection is known.
const detectTimeout = 10 * time.Second

// portMux accepts connections and passes each to one of two listeners. A connection
// that starts with the HTTP/2 preface, or that offers only h2 in TLS, goes to the
// gRPC listener. All others, such as browsers and curl, go to the HTTP listener and
// get HTTP/1.1. It does not authenticate callers.
type portMux struct {
	listener net.Listener
	tls      *tls.Config
	grpc     *protocolListener
	http     *protocolListener
	conns    conns
	close    sync.Once
	done     chan struct{} // closed by Close
}

// newPortMux returns a portMux on a listener, which Close closes. config is nil for a port
// without TLS. The portMux closes connections beyond most.
func newPortMux(l net.Listener, config *tls.Config, most int) *portMux {
	m := &portMux{listener: l, conns: conns{most: most, open: map[string]*conn{}}, done: make(chan struct{})}
	m.grpc, m.http = &protocolListener{m, make(chan net.Conn)}, &protocolListener{m, make(chan net.Conn)}
	if config != nil {
		m.tls = config.Clone()
		m.tls.GetConfigForClient = chooseProtocol(config)
	}
	return m
}

// chooseProtocol selects one protocol for a TLS client from those that it offers.
func chooseProtocol(config *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
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

// Serve accepts connections until the listener is closed. If the process has no file
// descriptor left, it waits for one.
func (m *portMux) Serve() error {
	defer m.Close()
	for {
		accepted, err := m.listener.Accept()
		switch {
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED):
			select {
			case <-time.After(acceptPause):
			case <-m.done:
			}
			continue
		case err != nil:
			return err
		}
		if added := m.conns.add(accepted); added != nil {
			go m.detect(added)
		}
	}
}

// detect finds the protocol of a connection and passes it to that listener.
func (m *portMux) detect(conn *conn) {
	_ = conn.SetDeadline(engine.MonotonicClock().Now().Time().Add(detectTimeout))
	target := m.http
	var accepted net.Conn
	if m.tls != nil {
		secure := tls.Server(conn, m.tls)
		if secure.Handshake() != nil {
			conn.Close()
			return
		}
		accepted = secure
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			target = m.grpc
		}
	} else {
		first, err := readPreface(conn)
		if err != nil {
			conn.Close()
			return
		}
		accepted = &prefixedConn{Conn: conn, prefix: first}
		if string(first) == preface {
			target = m.grpc
		}
	}
	_ = conn.SetDeadline(time.Time{})
	m.conns.mu.Lock()
	m.conns.detected(conn)
	m.conns.mu.Unlock()
	target.deliver(accepted)
}

// readPreface reads for as long as the bytes match the preface.
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

// Close closes the listener. Connections whose protocol is not known yet are closed
// when it is, or when detectTimeout has passed.
func (m *portMux) Close() {
	m.close.Do(func() {
		m.listener.Close()
		close(m.done)
	})
}

// prefixedConn is a connection whose first bytes were read already.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

// Read returns the prefix first, then what the connection receives.
func (c *prefixedConn) Read(p []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}

// protocolListener is a net.Listener of the connections of one protocol.
type protocolListener struct {
	mux   *portMux
	conns chan net.Conn
}

func (l *protocolListener) deliver(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.mux.done:
		conn.Close()
	}
}

func (l *protocolListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.mux.done:
		return nil, net.ErrClosed
	}
}

// Close closes the whole portMux.
func (l *protocolListener) Close() error {
	l.mux.Close()
	return nil
}

func (l *protocolListener) Addr() net.Addr { return l.mux.listener.Addr() }
