package member

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// certificates are the TLS of a member. The certificate can be reloaded, the
// authority cannot: sign the new certificate with both while it changes.
type certificates struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
	authority         *x509.CertPool
	askClients        bool
}

// newCertificates reads the files; nil without any.
func newCertificates(s *settings.Settings) (*certificates, error) {
	if s.TLSCert == "" {
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	c := &certificates{certFile: s.TLSCert, keyFile: s.TLSKey, authority: x509.NewCertPool(), askClients: s.TLSClients}
	text, err := os.ReadFile(s.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("read tls-ca: %w", err)
	}
	if !c.authority.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls-ca (%s) must have a certificate in PEM form", s.TLSCA)
	}
	return c, c.reload()
}

// reload reads the certificate again. If that fails the old one stays.
func (c *certificates) reload() error {
	if c == nil {
		return nil
	}
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read tls-cert (%s) and tls-key (%s): %w", c.certFile, c.keyFile, err)
	}
	c.current.Store(&loaded)
	return nil
}

func (c *certificates) own(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

func (c *certificates) ownAsClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// api is the TLS of the API.
func (c *certificates) api() *tls.Config {
	if c == nil {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.own}
	if c.askClients {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, c.authority
	}
	return config
}

// toPeers is how the APIs of other members are reached.
func (c *certificates) toPeers() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.authority, GetClientCertificate: c.ownAsClient}
}

// raft is the TLS between members: both sides show a certificate.
func (c *certificates) raft() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.own, GetClientCertificate: c.ownAsClient,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.authority, RootCAs: c.authority}
}
