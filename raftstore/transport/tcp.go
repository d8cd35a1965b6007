package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// rpcTimeout bounds one call to a peer.
	rpcTimeout = 10 * time.Second
	// maxIdle is how many idle connections for AppendEntries to a peer are kept. The Raft
	// library keeps none for its other requests: they are rare, and a request on a
	// connection to an earlier process of the peer would fail.
	maxIdle = 3
)

var (
	// ErrConfig reports an invalid configuration; the error names the rule.
	ErrConfig = errors.New("invalid node configuration")
	// ErrStarting is the answer of Config.Accept before the node knows its
	// configuration. The peer tries again, so the refusal is not logged.
	ErrStarting = errors.New("the node is starting")
)

// Config is the configuration of Listen.
type Config struct {
	// ID is the member that this node is. Its certificate must name it.
	ID string
	// Address is the TCP address to listen on.
	Address string
	// Advertise is the address that peers connect to. Default: Address.
	Advertise string
	// TLS returns the certificate of this node and the authority of its peers. It is
	// called for every connection and every check of open connections, so the
	// certificates can change. It must require and verify client certificates. Without
	// TLS both addresses must be loopback addresses.
	TLS func() *tls.Config
	// Accept returns an error if a peer whose certificate names these members must not
	// send requests. Default: every certificate that names a member is accepted.
	Accept func(ids []string) error
	// Admit reports whether a request is passed on to Consumer. It must answer a request
	// that is not. It may be called concurrently. Default: every request is admitted.
	Admit func(rpc raft.RPC) bool
	// Left, if not nil, is called when the last connection on which a member sent
	// AppendEntries has ended. It must not wait.
	Left func(id string)
	// Clock decides whether a certificate has expired. Default: engine.SystemClock.
	Clock  engine.Clock
	Logger hclog.Logger
}

// TCP is the Transport that Listen returns. Each side of a TLS connection checks which
// member the certificate of the other side names.
type TCP struct {
	*raft.NetworkTransport
	stream  *stream
	appends *appender
}

var _ Transport = (*TCP)(nil)

// Listen opens the TCP transport of a node. It returns ErrConfig for a port that
// others than the peers could use, for addresses that peers cannot reach, and for a
// certificate that does not name the node.
func Listen(c Config) (*TCP, error) {
	if c.Accept == nil {
		c.Accept = func([]string) error { return nil }
	}
	if c.Clock == nil {
		c.Clock = engine.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if err := c.validate(); err != nil {
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
		return nil, fmt.Errorf("%w: peers cannot reach %s; set advertise to an address of this machine", ErrConfig,
			advertised)
	}
	if c.Advertise != "" {
		advertised = namedAddr(c.Advertise)
	}
	s := newStream(c, listener, advertised)
	dial := func(to member) (net.Conn, error) {
		conn, err := s.dial(memberAt(to.id, to.address), rpcTimeout)
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	return &TCP{stream: s, appends: newAppender(dial),
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Logger: c.Logger, Stream: s, MaxRPCsInFlight: 1, Timeout: rpcTimeout,
		})}, nil
}

// validate refuses a port that others than the peers could use: a client of the
// port can change the log, and some malformed input ends the process.
func (c Config) validate() error {
	if c.TLS != nil {
		return c.validateTLS(c.TLS())
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
			return fmt.Errorf("%w: address (%s) is not a loopback address, and there is no tls; anyone who reaches the port "+
				"could change the log: "+
				"give the node certificates", ErrConfig, address)
		}
	}
	return nil
}

func (c Config) validateTLS(t *tls.Config) error {
	switch {
	case t.ClientAuth != tls.RequireAndVerifyClientCert:
		return fmt.Errorf("%w: tls must require and verify client certificates", ErrConfig)
	case t.ClientCAs == nil || t.RootCAs == nil:
		return fmt.Errorf("%w: tls needs the authority of the peers, for clients and for servers", ErrConfig)
	case len(t.Certificates) == 0:
		return fmt.Errorf("%w: tls needs a certificate of this node", ErrConfig)
	}
	return CheckOwn(t.Certificates[0], c.ID)
}

// CheckOwn returns an ErrConfig if a node cannot use a certificate because it does not
// name the node: its peers would refuse it.
func CheckOwn(own tls.Certificate, id string) error {
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		return fmt.Errorf("%w: parse the certificate of this node: %w", ErrConfig, err)
	}
	if !Names(leaf, id) {
		return fmt.Errorf("%w: the certificate of this node (%s) names the members %q, not %q; "+
			"its subject alternative names must contain the URI %s (`leased certs` makes such certificates)",
			ErrConfig, leaf.Subject, MemberIDs(leaf), id, MemberURI(id))
	}
	return nil
}

// Consumer returns the channel with the requests of the peers.
func (t *TCP) Consumer() <-chan raft.RPC { return t.stream.requests }

// Receives reports whether a connection is open on which a member sent AppendEntries.
func (t *TCP) Receives(id string) bool { return t.stream.receives(id) }

// Campaign makes the Raft library of this node, whose ID is id, start an election, as if the
// leader had transferred the leadership.
func (t *TCP) Campaign(id string) {
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id)}}
	select {
	case t.stream.requests <- raft.RPC{Command: request, RespChan: make(chan raft.RPCResponse, 1)}:
	case <-t.stream.stopped:
	}
}

// Recheck closes the connections that would no longer be accepted: after a change of
// the certificates or the members. It also runs every recheckInterval.
func (t *TCP) Recheck() { t.stream.recheck() }

// AppendEntries sends entries to a member.
func (t *TCP) AppendEntries(id raft.ServerID, target raft.ServerAddress, request *raft.AppendEntriesRequest,
	response *raft.AppendEntriesResponse) error {
	return t.appends.call(member{id, target}, request, response)
}

// RequestVote asks a member for its vote.
func (t *TCP) RequestVote(id raft.ServerID, target raft.ServerAddress, request *raft.RequestVoteRequest,
	response *raft.RequestVoteResponse) error {
	return t.NetworkTransport.RequestVote(id, memberAt(id, target), request, response)
}

// RequestPreVote asks a member whether it would vote for this node.
func (t *TCP) RequestPreVote(id raft.ServerID, target raft.ServerAddress, request *raft.RequestPreVoteRequest,
	response *raft.RequestPreVoteResponse) error {
	return t.NetworkTransport.RequestPreVote(id, memberAt(id, target), request, response)
}

// InstallSnapshot sends a snapshot to a member.
func (t *TCP) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, request *raft.InstallSnapshotRequest,
	response *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.NetworkTransport.InstallSnapshot(id, memberAt(id, target), request, response, data)
}

// TimeoutNow makes a member start an election.
func (t *TCP) TimeoutNow(id raft.ServerID, target raft.ServerAddress, request *raft.TimeoutNowRequest,
	response *raft.TimeoutNowResponse) error {
	return t.NetworkTransport.TimeoutNow(id, memberAt(id, target), request, response)
}

// namedAddr is a host name and port, not resolved: peers check the certificate
// against the name.
type namedAddr string

func (namedAddr) Network() string  { return "tcp" }
func (a namedAddr) String() string { return string(a) }
