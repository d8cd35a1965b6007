package transport

import (
	"crypto/tls"
	"errors"
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

// ErrConfig reports an invalid configuration; the error names the rule.
var ErrConfig = errors.New("invalid node configuration")

// Config is the configuration of Listen.
type Config struct {
	// Address is the TCP address to listen on.
	Address string
	// Advertise is the address that peers connect to. Default: Address.
	Advertise string
	// TLS must require and verify client certificates. Without TLS both addresses
	// must be loopback addresses.
	TLS    *tls.Config
	Logger hclog.Logger
}

// Listen opens the TCP transport of a node. It returns ErrConfig for a port that
// others than the peers could use, and for addresses that peers cannot reach.
func Listen(c Config) (Transport, error) {
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
		return nil, fmt.Errorf("%w: peers cannot reach %s; set advertise to an address of this machine", ErrConfig, advertised)
	}
	if c.Advertise != "" {
		advertised = namedAddr(c.Advertise)
	}
	stream := &streamLayer{Listener: listener, advertised: advertised}
	if c.TLS != nil {
		stream.tls = c.TLS.Clone()
		stream.Listener = tls.NewListener(listener, stream.tls)
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger: c.Logger, Stream: stream, MaxPool: maxPool, MaxRPCsInFlight: 1, Timeout: rpcTimeout,
	}), nil
}

// validate refuses a port that others than the peers could use: a client of the
// port can change the log, and some malformed input ends the process.
func (c Config) validate() error {
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
	tls        *tls.Config
}

// Addr returns the address that peers connect to.
func (s *streamLayer) Addr() net.Addr { return s.advertised }

func (s *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	if s.tls == nil {
		return dialer.Dial("tcp", string(address))
	}
	return tls.DialWithDialer(dialer, "tcp", string(address), s.tls)
}

// namedAddr is a host name and port, not resolved: peers check the certificate
// against the name.
type namedAddr string

func (namedAddr) Network() string  { return "tcp" }
func (a namedAddr) String() string { return string(a) }
