package secret

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leased-project/leased/lease/remote/wire"
)

// scheme is that of the header.
const scheme = "Bearer "

// Header is the value of the header "Authorization".
func Header(secret string) string { return scheme + secret }

// DialOptions are the options of gRPC for connections with this TLS, none if it
// is nil, that send a secret with each call, none if it is empty. Without TLS a
// connection that leaves the machine fails before the secret is sent.
func DialOptions(config *tls.Config, secret string) []grpc.DialOption {
	var options []grpc.DialOption
	switch {
	case config != nil:
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	case secret == "":
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	default: // a proxy on this machine would pass the secret on
		options = append(options, grpc.WithTransportCredentials(within{insecure.NewCredentials()}), grpc.WithNoProxy())
	}
	if secret != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(secret)))
	}
	return options
}

// CheckAddress refuses to send a secret without TLS to an address that is seen
// to be of another machine. Of a host's name only the connection shows that.
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

// within are connections without TLS that do not leave the machine.
type within struct {
	credentials.TransportCredentials
}

// ClientHandshake looks where the connection has got to: what a name stood for
// before does not count.
func (w within) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := CheckConn(conn); err != nil {
		return nil, nil, err
	}
	return conn, stayed{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

// Clone keeps the check.
func (w within) Clone() credentials.TransportCredentials {
	return within{w.TransportCredentials.Clone()}
}

// stayed marks a connection that was looked at.
type stayed struct {
	credentials.CommonAuthInfo
}

// AuthType is for gRPC.
func (stayed) AuthType() string { return "loopback" }

// bearer sends a secret with each call.
type bearer string

// GetRequestMetadata refuses connections that others can read, also those of a
// caller who has brought its own way to connect.
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
