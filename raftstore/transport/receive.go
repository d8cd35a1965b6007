package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// receive passes on the requests of an incoming connection until it is closed. A request
// must name a member of the peer's certificate as its sender.
//
// The Raft library does not say which connection a request came from. So each incoming
// connection has a transport of the library of its own, which decodes its requests.
func (s *stream) receive(p *peerConn) {
	decoder := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: &oneConn{conn: p, addr: s.advertised, closed: make(chan struct{})},
		Logger: s.config.Logger, MaxRPCsInFlight: 1, Timeout: rpcTimeout})
	defer decoder.Close()
	defer p.Close()
	for {
		select {
		case rpc := <-decoder.Consumer():
			if err := p.checkSender(rpc); err != nil {
				s.refusals.log(p.RemoteAddr(), p.state(), err)
				return
			}
			select {
			case s.requests <- rpc:
			case <-p.closed:
				return
			}
		case <-p.closed:
			return
		}
	}
}

// checkSender returns an error if a request names a sender that the certificate of the
// peer does not name. Without TLS every sender is accepted.
func (p *peerConn) checkSender(rpc raft.RPC) error {
	secure, ok := p.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	command, ok := rpc.Command.(raft.WithRPCHeader)
	if !ok {
		return fmt.Errorf("%w: a request of type %T names no sender", ErrPeer, rpc.Command)
	}
	sender, ids := string(command.GetRPCHeader().ID), MemberIDs(secure.ConnectionState().PeerCertificates[0])
	if !slices.Contains(ids, sender) {
		return fmt.Errorf("%w: a request names member %q as its sender, but the certificate names %q", ErrPeer, sender, ids)
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
