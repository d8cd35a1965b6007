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

	"github.com/leased-project/leased/lease/engine"
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
	if err := engine.CheckFormat("append entries", uint64(start[1]), AppendVersion); err != nil {
		return err
	}
	if start[1] == 0 {
		return fmt.Errorf("%w: version 0 of append entries", errMessage)
	}
	return s.receiveAppends(p, in)
}

// receiveOthers passes on requests in the format of the Raft library.
//
// The library does not say which connection a request came from. So each incoming
// connection has a transport of the library of its own, which decodes its requests.
func (s *stream) receiveOthers(p *peerConn, in io.Reader) error {
	decoder := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: &oneConn{conn: readConn{p, in}, addr: s.advertised, closed: make(chan struct{})},
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
		return fmt.Errorf("%w: a request names member %q as its sender, but the certificate names %q", ErrPeer, header.ID, p.members)
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
