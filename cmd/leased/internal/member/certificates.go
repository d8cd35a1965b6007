package member

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// certificates is the TLS configuration of a member. The certificate and the CA can
// be reloaded; existing connections stay. To change the CA, tls-ca of all members
// contains both CAs for a while.
type certificates struct {
	certFile, keyFile, caFile string
	requireClient             bool
	current                   atomic.Pointer[loadedCertificates]
	// hosts returns the hosts of the members, for connections by IP address.
	hosts func() []string
}

// loadedCertificates is the content of the files.
type loadedCertificates struct {
	own *tls.Certificate
	ca  *x509.CertPool
}

// newCertificates reads the files. It returns nil without tls-cert.
func newCertificates(s *settings.Settings, hosts func() []string) (*certificates, error) {
	if s.TLSCert == "" {
		return nil, nil //nolint:nilnil // nil means no TLS
	}
	c := &certificates{certFile: s.TLSCert, keyFile: s.TLSKey, caFile: s.TLSCA, requireClient: s.TLSClients, hosts: hosts}
	return c, c.reload()
}

// reload reads the files again. If that fails, the old content stays in effect.
func (c *certificates) reload() error {
	if c == nil {
		return nil
	}
	text, err := os.ReadFile(c.caFile)
	if err != nil {
		return fmt.Errorf("read tls-ca: %w", err)
	}
	fresh := &loadedCertificates{ca: x509.NewCertPool()}
	if !fresh.ca.AppendCertsFromPEM(text) {
		return fmt.Errorf("tls-ca (%s) contains no PEM certificate", c.caFile)
	}
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read tls-cert (%s) and tls-key (%s): %w", c.certFile, c.keyFile, err)
	}
	fresh.own = &loaded
	c.current.Store(fresh)
	return nil
}

func (c *certificates) own(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load().own, nil
}

func (c *certificates) ownAsClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.current.Load().own, nil
}

// mutual returns a server configuration that requires a client certificate signed by
// the current CA.
func (c *certificates) mutual() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.own, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: c.current.Load().ca}
}

func (c *certificates) mutualNow(*tls.ClientHelloInfo) (*tls.Config, error) { return c.mutual(), nil }

// api returns the TLS configuration of the API.
func (c *certificates) api() *tls.Config {
	switch {
	case c == nil:
		return nil
	case c.requireClient:
		config := c.mutual()
		config.GetConfigForClient = c.mutualNow
		return config
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.own}
}

// toPeers returns the TLS configuration for calls to other members.
func (c *certificates) toPeers() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.current.Load().ca, GetClientCertificate: c.ownAsClient}
}

// raft returns the TLS configuration between members: both sides present a
// certificate. Raft keeps this configuration, so verify checks the server's
// certificate against the CA at that time.
func (c *certificates) raft() *tls.Config {
	if c == nil {
		return nil
	}
	config := c.mutual()
	config.GetConfigForClient = c.mutualNow
	config.GetClientCertificate = c.ownAsClient
	config.RootCAs = config.ClientCAs
	config.InsecureSkipVerify, config.VerifyConnection = true, c.verify
	return config
}

// verify checks the certificate of another member. For a connection to an IP address
// crypto/tls does not provide the name: it must be the address of any member.
func (c *certificates) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the other member presented no certificate")
	}
	leaf, options := state.PeerCertificates[0], x509.VerifyOptions{Roots: c.current.Load().ca, DNSName: state.ServerName,
		Intermediates: x509.NewCertPool()}
	for _, other := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(other)
	}
	if _, err := leaf.Verify(options); err != nil || state.ServerName != "" {
		return err
	}
	for _, host := range c.hosts() {
		if leaf.VerifyHostname(host) == nil {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %q is not valid for the address of a member", leaf.Subject.CommonName)
}

// hostsOf returns the hosts of addresses.
func hostsOf(addresses []string) []string {
	var hosts []string
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
