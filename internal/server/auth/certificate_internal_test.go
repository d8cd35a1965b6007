package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	"github.com/stretchr/testify/require"
)

// A certificate identifies a user only if the TLS handshake has verified it.
func TestUnverifiedCertificate(t *testing.T) {
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}
	require.Empty(t, subjectOf(tls.ConnectionState{}))
	require.Empty(t, subjectOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}))
	require.Equal(t, "alice", subjectOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate},
		VerifiedChains: [][]*x509.Certificate{{certificate}}}))
}
