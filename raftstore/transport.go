package raftstore

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// rpcTimeout bounds one call to a peer.
	rpcTimeout = 10 * time.Second
	// maxPool is how many idle connections to a peer are kept.
	maxPool = 3
)

// Transport is how a node reaches its peers.
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// steady is a Transport without two of the engine's shortcuts.
//
// The heartbeat fast path changes term and state beside the goroutine that owns
// them: a candidate that is told of a new leader that way, and then gets a late
// vote, leads too, in the same term, and two entries are committed at one index
// (hashicorp/raft 695). Heartbeats here go the ordinary way.
//
// Pipelined replication can hang for good after a rejection (612), and makes
// commits slower where there is batching. There is one request in flight here.
//
// It also notes how far followers are.
type steady struct {
	Transport
	progress *progress
}

// AppendEntries sends entries, and notes what was acknowledged.
func (s steady) AppendEntries(id raft.ServerID, target raft.ServerAddress, request *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) error {
	err := s.Transport.AppendEntries(id, target, request, answer)
	if err == nil && answer.Success {
		s.progress.note(id, request)
	}
	return err
}

// SetHeartbeatHandler does nothing.
func (steady) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline is refused; the engine then sends one at a time.
func (steady) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// listen opens the TCP transport of a node.
func listen(c Config, logger hclog.Logger) (Transport, error) {
	if err := checkTLS(c); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	advertised := listener.Addr()
	if c.Advertise != "" {
		if advertised, err = net.ResolveTCPAddr("tcp", c.Advertise); err != nil {
			listener.Close()
			return nil, fmt.Errorf("%w: advertise (%s): %w", ErrConfig, c.Advertise, err)
		}
	}
	if a, ok := advertised.(*net.TCPAddr); !ok || a.IP == nil || a.IP.IsUnspecified() {
		listener.Close()
		return nil, fmt.Errorf("%w: peers cannot reach %s; set advertise to an address of this machine", ErrConfig, advertised)
	}
	stream := &streamLayer{Listener: listener, advertised: advertised, name: c.Advertise}
	if c.TLS != nil {
		stream.tls = c.TLS.Clone()
		stream.Listener = tls.NewListener(listener, stream.tls)
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger: logger, Stream: stream, MaxPool: maxPool, MaxRPCsInFlight: 1, Timeout: rpcTimeout,
	}), nil
}

// checkTLS refuses a port that strangers could use: whoever can speak to it can
// change the log, and some malformed input ends the process.
func checkTLS(c Config) error {
	if t := c.TLS; t != nil {
		switch {
		case t.ClientAuth != tls.RequireAndVerifyClientCert:
			return fmt.Errorf("%w: tls must require and verify client certificates", ErrConfig)
		case t.ClientCAs == nil || t.RootCAs == nil:
			return fmt.Errorf("%w: tls needs the authority of the peers, for clients and for servers", ErrConfig)
		case len(t.Certificates) == 0 && t.GetCertificate == nil:
			return fmt.Errorf("%w: tls needs a certificate of this node", ErrConfig)
		}
		return nil
	}
	for _, address := range []string{c.Address, c.Advertise} {
		if address == "" {
			continue
		}
		resolved, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			return fmt.Errorf("%w: address (%s): %w", ErrConfig, address, err)
		}
		if resolved.IP == nil || !resolved.IP.IsLoopback() {
			return fmt.Errorf("%w: address (%s) is not a loopback address, and there is no tls; anyone who reaches the port could change the log: "+
				"give the node certificates", ErrConfig, address)
		}
	}
	return nil
}

// streamLayer is plain TCP, or TLS with certificates on both sides.
type streamLayer struct {
	net.Listener
	advertised net.Addr
	name       string // as the operator wrote it, if he did
	tls        *tls.Config
}

// Addr is the address that peers are told.
func (s *streamLayer) Addr() net.Addr {
	if s.name != "" {
		return namedAddr(s.name)
	}
	return s.advertised
}

// Dial connects to a peer.
func (s *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	if s.tls == nil {
		return dialer.Dial("tcp", string(address))
	}
	return tls.DialWithDialer(dialer, "tcp", string(address), s.tls)
}

// namedAddr is a host name and port, not resolved: peers check the certificate
// against it.
type namedAddr string

// Network is "tcp".
func (namedAddr) Network() string { return "tcp" }

// String is the name and the port.
func (a namedAddr) String() string { return string(a) }
