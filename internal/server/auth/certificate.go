package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// subjectOf returns the subject common name of the client certificate of a connection,
// or "" if there is none that was verified.
func subjectOf(state tls.ConnectionState) string {
	if len(state.VerifiedChains) == 0 {
		return ""
	}
	return state.VerifiedChains[0][0].Subject.CommonName
}

// TransportCredentials returns gRPC credentials for connections whose TLS handshake is
// done: they tell the interceptors the client certificate. Connections without TLS
// have none.
func TransportCredentials() credentials.TransportCredentials { return handshaken{} }

type handshaken struct{}

// ServerHandshake returns the connection and the state of its TLS session.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := credentials.TLSInfo{}
	if secure, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		info.State = secure.ConnectionState()
		info.SecurityLevel = credentials.PrivacyAndIntegrity
	}
	return conn, info, nil
}

// ClientHandshake fails: these credentials are for servers.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("auth.TransportCredentials are for servers")
}

// Info describes the credentials.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns the same credentials, which have no state.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName does nothing: a server has no name to check.
func (handshaken) OverrideServerName(string) error { return nil }
