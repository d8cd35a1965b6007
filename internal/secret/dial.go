package secret

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leased-project/leased/internal/wire"
)

// scheme is the authentication scheme of the header.
const scheme = "Bearer "

// Header returns the value of the header "Authorization".
func Header(secret string) string { return scheme + secret }

// DialOptions returns gRPC options for connections that use this TLS configuration
// (nil: no TLS) and send this secret with each call (empty: none). Without TLS, a
// connection to another machine fails before the secret is sent.
func DialOptions(config *tls.Config, secret string) []grpc.DialOption {
	options := []grpc.DialOption{grpc.WithStaticStreamWindowSize(wire.Window), grpc.WithStaticConnWindowSize(wire.Window)}
	switch {
	case config != nil:
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	case secret == "":
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	default: // a proxy on this machine would forward the secret
		options = append(options, grpc.WithTransportCredentials(within{insecure.NewCredentials()}), grpc.WithNoProxy())
	}
	if secret != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(secret)))
	}
	return options
}

// CheckAddress refuses to send a secret without TLS to an IP address of another
// machine. For a host name, only the connection shows the address.
func CheckAddress(address string, config *tls.Config, secret string) error {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if config != nil || secret == "" || err != nil || ip == nil || ip.IsLoopback() {
		return nil
	}
	return refuse(address)
}

// CheckConn refuses a connection without TLS to another machine.
func CheckConn(conn net.Conn) error {
	switch address := conn.RemoteAddr().(type) {
	case *net.TCPAddr:
		if address.IP.IsLoopback() {
			return nil
		}
	case *net.UnixAddr:
		return nil
	}
	return refuse(conn.RemoteAddr().String())
}

func refuse(address string) error {
	return fmt.Errorf("%w: a secret is not sent without TLS to %s, which is not a loopback address; "+
		"name the authority of the service's certificates (tls-ca)", wire.ErrUnauthenticated, address)
}

// within provides connections without TLS that do not leave the machine.
type within struct {
	credentials.TransportCredentials
}

// ClientHandshake checks the address of the connection itself, not the name that was
// resolved before.
func (w within) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := CheckConn(conn); err != nil {
		return nil, nil, err
	}
	return conn, stayed{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

// Clone returns the same check.
func (w within) Clone() credentials.TransportCredentials {
	return within{w.TransportCredentials.Clone()}
}

// stayed marks a connection that was checked.
type stayed struct {
	credentials.CommonAuthInfo
}

// AuthType implements credentials.AuthInfo.
func (stayed) AuthType() string { return "loopback" }

// bearer sends a secret with each call.
type bearer string

// GetRequestMetadata refuses connections that others can read, including those of a
// caller's own dialer.
func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	if _, local := info.AuthInfo.(stayed); !local {
		if err := credentials.CheckSecurityLevel(info.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
			return nil, fmt.Errorf("%w: a secret is not sent without TLS", wire.ErrUnauthenticated)
		}
	}
	return map[string]string{"authorization": Header(string(b))}, nil
}

// RequireTransportSecurity leaves the decision to GetRequestMetadata.
func (b bearer) RequireTransportSecurity() bool { return false }

// String hides the secret from logs.
func (b bearer) String() string { return "a secret" }
