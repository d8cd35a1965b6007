package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// handshakeTimeout bounds the TLS handshake of an incoming connection.
	handshakeTimeout = 5 * time.Second
	// recheckInterval is the time between two checks of the open connections.
	recheckInterval = time.Second
	// acceptPause is the time after a failed accept.
	acceptPause = 50 * time.Millisecond
)

// stream is the raft.StreamLayer of a TCP transport. It reads requests from an incoming
// connection only after it has identified the peer, and it knows all open connections, so
// that it can check them again.
type stream struct {
	config     Config
	listener   net.Listener
	advertised net.Addr
	refusals   refusals
	handshakes handshakes

	requests chan raft.RPC
	stop     sync.Once
	stopped  chan struct{}

	mu      sync.Mutex
	open    map[*peerConn]struct{} // nil after Close
	senders map[string]int         // number of open connections on which a member sent AppendEntries
}

var _ raft.StreamLayer = (*stream)(nil)

// peerConn is an open connection. dialed is the member that this node called, "" if the
// peer opened the connection. members are those that the certificate of the peer names.
type peerConn struct {
	net.Conn
	stream  *stream
	dialed  string
	members []string
	once    sync.Once
	closed  chan struct{}
}

func newStream(c Config, listener net.Listener, advertised net.Addr) *stream {
	s := &stream{config: c, listener: listener, advertised: advertised, requests: make(chan raft.RPC),
		stopped: make(chan struct{}),
		open:    map[*peerConn]struct{}{}, senders: map[string]int{}, refusals: refusals{logger: c.Logger, clock: c.Clock}}
	go s.serve()
	if c.TLS != nil {
		go s.watch()
	}
	return s
}

// memberAt is the target of a call. The Raft library dials and pools connections by
// address only; this address also contains the member.
func memberAt(id raft.ServerID, address raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(id) + "/" + address
}

// splitTarget is the inverse of memberAt. An address contains no slash.
func splitTarget(target raft.ServerAddress) (id, address string) {
	at := strings.LastIndexByte(string(target), '/')
	if at < 0 {
		return "", string(target)
	}
	return string(target[:at]), string(target[at+1:])
}

// serve accepts connections until Close.
func (s *stream) serve() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.config.Logger.Error("cannot accept a connection of a peer", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-s.stopped:
				return
			}
			continue
		}
		s.handshakes.begin(conn)
		go func() {
			if identified := s.identify(conn); identified != nil {
				s.receive(identified)
			}
		}()
	}
}

// identify performs the handshake of an incoming connection. It returns nil if the
// connection was refused.
func (s *stream) identify(conn net.Conn) *peerConn {
	if s.config.TLS == nil {
		s.handshakes.end(conn)
		return s.track(conn, "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	secure := tls.Server(conn, s.checked("", ""))
	err := secure.HandshakeContext(ctx)
	if !s.handshakes.end(conn) {
		err = errGaveWay
	}
	if err != nil {
		conn.Close()
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrStarting) {
			s.refusals.log(conn.RemoteAddr(), secure.ConnectionState(), err)
		}
		return nil
	}
	return s.track(secure, "")
}

// checked returns the current TLS configuration, with the check of the peer added to
// the verification of its certificate. A resumed session would skip that verification.
func (s *stream) checked(dialed, host string) *tls.Config {
	c := s.config.TLS().Clone()
	c.GetConfigForClient, c.SessionTicketsDisabled, c.ClientSessionCache = nil, true, nil
	c.ServerName = host
	c.Time = func() time.Time { return s.config.Clock.Now().Time() }
	c.VerifyConnection = func(state tls.ConnectionState) error { return s.check(state, dialed) }
	return c
}

// track records an open connection.
func (s *stream) track(conn net.Conn, dialed string) *peerConn {
	p := &peerConn{Conn: conn, stream: s, dialed: dialed, closed: make(chan struct{})}
	if certificates := p.state().PeerCertificates; len(certificates) > 0 {
		p.members = MemberIDs(certificates[0])
	}
	s.mu.Lock()
	stopped := s.open == nil
	if !stopped {
		s.open[p] = struct{}{}
	}
	s.mu.Unlock()
	if stopped {
		p.Close()
	}
	return p
}

// Read reads from the connection. After Close it returns io.EOF, which the Raft library
// does not log.
func (p *peerConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if err != nil {
		select {
		case <-p.closed:
			err = io.EOF
		default:
		}
	}
	return n, err
}

// Close closes the connection.
func (p *peerConn) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.stream.mu.Lock()
		delete(p.stream.open, p)
		p.stream.mu.Unlock()
	})
	return p.Conn.Close()
}

// watch checks the open connections until Close.
func (s *stream) watch() {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.recheck()
		case <-s.stopped:
			return
		}
	}
}

// recheck closes the connections that would no longer be accepted.
func (s *stream) recheck() {
	if s.config.TLS == nil {
		return
	}
	for _, p := range s.connections() {
		state := p.state()
		if err := s.check(state, p.dialed); err != nil {
			s.refusals.log(p.RemoteAddr(), state, fmt.Errorf("close an open connection: %w", err))
			p.Close()
		}
	}
}

func (s *stream) connections() []*peerConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*peerConn
	for p := range s.open {
		all = append(all, p)
	}
	return all
}

// Accept waits for Close: incoming connections are served by receive.
func (s *stream) Accept() (net.Conn, error) {
	<-s.stopped
	return nil, net.ErrClosed
}

// dial connects to a member, and checks that the member answers.
func (s *stream) dial(target raft.ServerAddress, timeout time.Duration) (*peerConn, error) {
	id, address := splitTarget(target)
	dialer := &net.Dialer{Timeout: timeout}
	if s.config.TLS == nil {
		conn, err := dialer.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		return s.track(conn, id), nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial member %s: %w", id, err)
	}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, s.checked(id, host))
	if err != nil {
		return nil, fmt.Errorf("dial member %s at %s: %w", id, address, err)
	}
	return s.track(conn, id), nil
}

// Addr returns the address that peers connect to.
func (s *stream) Addr() net.Addr { return s.advertised }

// Close closes the listener and all connections.
func (s *stream) Close() error {
	var err error
	s.stop.Do(func() {
		close(s.stopped)
		err = s.listener.Close()
		open := s.connections()
		s.mu.Lock()
		s.open = nil
		s.mu.Unlock()
		for _, p := range open {
			p.Close()
		}
	})
	return err
}
