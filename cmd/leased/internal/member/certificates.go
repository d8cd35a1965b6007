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

// certificates are the TLS of a member. Certificate and authority can be
// reloaded; connections that exist stay. While the authority changes, tls-ca of
// all members has both, the old one and the new one.
type certificates struct {
	certFile, keyFile, authorityFile string
	askClients                       bool
	current                          atomic.Pointer[identityTLS]
	// hosts are those of the members, for connections by IP address.
	hosts func() []string
}

// identityTLS is what the files said when they were read last.
type identityTLS struct {
	own       *tls.Certificate
	authority *x509.CertPool
}

// newCertificates reads the files; nil without any.
func newCertificates(s *settings.Settings, hosts func() []string) (*certificates, error) {
	if s.TLSCert == "" {
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	c := &certificates{certFile: s.TLSCert, keyFile: s.TLSKey, authorityFile: s.TLSCA, askClients: s.TLSClients, hosts: hosts}
	return c, c.reload()
}

// reload reads the files again. If that fails what was read before stays.
func (c *certificates) reload() error {
	if c == nil {
		return nil
	}
	text, err := os.ReadFile(c.authorityFile)
	if err != nil {
		return fmt.Errorf("read tls-ca: %w", err)
	}
	fresh := &identityTLS{authority: x509.NewCertPool()}
	if !fresh.authority.AppendCertsFromPEM(text) {
		return fmt.Errorf("tls-ca (%s) must have a certificate in PEM form", c.authorityFile)
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

// asking is a server that asks its clients for a certificate of the present
// authority.
func (c *certificates) asking() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.own, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: c.current.Load().authority}
}

func (c *certificates) askingNow(*tls.ClientHelloInfo) (*tls.Config, error) { return c.asking(), nil }

// api is the TLS of the API.
func (c *certificates) api() *tls.Config {
	switch {
	case c == nil:
		return nil
	case c.askClients:
		config := c.asking()
		config.GetConfigForClient = c.askingNow
		return config
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.own}
}

// toPeers is how the APIs of other members are reached now.
func (c *certificates) toPeers() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.current.Load().authority, GetClientCertificate: c.ownAsClient}
}

// raft is the TLS between members: both sides show a certificate. The engine
// keeps this configuration, so the server's certificate is checked by verify,
// with the authority of then.
func (c *certificates) raft() *tls.Config {
	if c == nil {
		return nil
	}
	config := c.asking()
	config.GetConfigForClient = c.askingNow
	config.GetClientCertificate = c.ownAsClient
	config.RootCAs = config.ClientCAs
	config.InsecureSkipVerify, config.VerifyConnection = true, c.verify
	return config
}

// verify checks the certificate of a member that this one has connected to. By
// IP address the name is not known here: it must be that of some member.
func (c *certificates) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the other side has shown no certificate")
	}
	leaf, options := state.PeerCertificates[0], x509.VerifyOptions{Roots: c.current.Load().authority, DNSName: state.ServerName,
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
	return fmt.Errorf("the certificate of %q is not that of a member's address", leaf.Subject.CommonName)
}

// hostsOf are the hosts of addresses.
func hostsOf(addresses []string) []string {
	var hosts []string
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
