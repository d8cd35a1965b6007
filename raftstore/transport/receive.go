package transport

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// receive passes on the requests of an incoming connection until it is closed. A request
// must name a member of the peer's certificate as its sender.
func (s *stream) receive(p *peerConn) {
	defer p.Close()
	in := bufio.NewReaderSize(p, connBuffer)
	format, err := in.Peek(1)
	if err != nil {
		return
	}
	if format[0] == appendFormat {
		err = s.receiveFormat(p, in)
	} else {
		err = s.receiveOthers(p, in)
	}
	if err != nil {
		s.refusals.log(p.RemoteAddr(), p.state(), err)
	}
}

// receiveFormat checks the version of a connection for AppendEntries, and receives its
// requests.
func (s *stream) receiveFormat(p *peerConn, in *bufio.Reader) error {
	var start [2]byte
	if _, err := io.ReadFull(in, start[:]); err != nil {
		return nil
	}
	if start[1] != AppendVersion {
		return s.refuseVersion(p, in, &versionError{s.config.ID, start[1]})
	}
	return s.receiveAppends(p, in)
}

// versionError is the answer to a peer that sends AppendEntries in a version that this build
// does not read.
type versionError struct {
	member string // that refuses the peer
	found  uint8  // the version that the peer sends
}

func (e *versionError) Error() string {
	return fmt.Sprintf("append entries: member %s runs a build that reads version %d, and its peer sends version %d; "+
		"run builds that read each other's version on all members (see 'leased version')", e.member, AppendVersion, e.found)
}

// refuseVersion logs the refusal of a peer of another build, and answers its requests with the
// reason until the peer closes the connection.
func (s *stream) refuseVersion(p *peerConn, in *bufio.Reader, reason *versionError) error {
	s.refusals.log(p.RemoteAddr(), p.state(), reason)
	var size [4]byte
	for {
		if _, err := readMessage(in, &size); err != nil {
			return nil
		}
		if _, err := p.Write(appendResponse(nil, nil, reason)); err != nil {
			return nil
		}
	}
}

// receiveOthers passes on requests in the format of the Raft library.
//
// The library does not say which connection a request came from. So each incoming
// connection has a transport of the library of its own, which decodes its requests.
func (s *stream) receiveOthers(p *peerConn, in io.Reader) error {
	decoder := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: &oneConn{conn: readConn{p, in},
		addr: s.advertised, closed: make(chan struct{})},
		Logger: s.config.Logger, MaxRPCsInFlight: 1, Timeout: rpcTimeout})
	defer decoder.Close()
	for {
		select {
		case rpc := <-decoder.Consumer():
			if err := s.deliver(p, rpc); err != nil {
				return err
			}
		case <-p.closed:
			return nil
		}
	}
}

// readConn is a connection whose first bytes were read ahead.
type readConn struct {
	*peerConn
	in io.Reader
}

// Read reads from the buffer.
func (c readConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// deliver passes a request on, if its sender may send it and the node admits it.
func (s *stream) deliver(p *peerConn, rpc raft.RPC) error {
	if err := p.checkSender(rpc); err != nil {
		return err
	}
	if rpc.Reader != nil {
		rpc.Reader = steadyReader{p, rpc.Reader}
	}
	if s.config.Admit != nil && !s.config.Admit(rpc) {
		return nil
	}
	select {
	case s.requests <- rpc:
	case <-p.closed:
	}
	return nil
}

// checkSender returns an error if a request names a sender that the certificate of the
// peer does not name. Without TLS every sender is accepted.
func (p *peerConn) checkSender(rpc raft.RPC) error {
	if _, secure := p.Conn.(*tls.Conn); !secure {
		return nil
	}
	command, ok := rpc.Command.(raft.WithRPCHeader)
	if !ok {
		return fmt.Errorf("%w: a request of type %T names no sender", ErrPeer, rpc.Command)
	}
	header := command.GetRPCHeader()
	if !slices.ContainsFunc(p.members, func(id string) bool { return id == string(header.ID) }) {
		return fmt.Errorf("%w: a request names member %q as its sender, but the certificate names %q", ErrPeer, header.ID,
			p.members)
	}
	return nil
}

// state returns the state of the TLS session, the zero value without TLS.
func (p *peerConn) state() tls.ConnectionState {
	if secure, ok := p.Conn.(*tls.Conn); ok {
		return secure.ConnectionState()
	}
	return tls.ConnectionState{}
}

// oneConn is a raft.StreamLayer that accepts one connection.
type oneConn struct {
	raft.StreamLayer // dials nobody
	conn             net.Conn
	addr             net.Addr
	once, stop       sync.Once
	closed           chan struct{}
}

// Accept returns the connection, and waits for Close the second time.
func (o *oneConn) Accept() (conn net.Conn, err error) {
	o.once.Do(func() { conn = o.conn })
	if conn != nil {
		return conn, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

// Addr returns the address that peers connect to.
func (o *oneConn) Addr() net.Addr { return o.addr }

// Close ends Accept.
func (o *oneConn) Close() error {
	o.stop.Do(func() { close(o.closed) })
	return nil
}
