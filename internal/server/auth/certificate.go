package auth

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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
func TransportCredentials() credentials.TransportCredentials {
	return handshaken{insecure.NewCredentials()}
}

// handshaken makes no handshake of its own, like the credentials that it contains.
type handshaken struct {
	credentials.TransportCredentials
}

// ServerHandshake returns the connection and the state of its TLS session.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := credentials.TLSInfo{}
	if secure, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		info.State = secure.ConnectionState()
		info.SecurityLevel = credentials.PrivacyAndIntegrity
	}
	return conn, info, nil
}

// Clone returns the same credentials, which have no state.
func (h handshaken) Clone() credentials.TransportCredentials { return h }
