package member

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/raftstore/transport"
)

// certificates is the TLS configuration of a member. The certificate and the CA can
// be reloaded; existing connections of the API stay, and those between members are
// checked again. The certificate must name the member (transport.MemberURI). To change
// the CA, let tls-ca of all members contain both CAs in between.
type certificates struct {
	id                        string // of the member
	certFile, keyFile, caFile string
	requireClient             bool
	current                   atomic.Pointer[loadedCertificates]
	reported                  string // the fingerprint of the last report
}

// loadedCertificates is the content of the files.
type loadedCertificates struct {
	own *tls.Certificate
	ca  *x509.CertPool
	// caExpiry is when the first certificate of the CA file expires.
	caExpiry time.Time
}

// newCertificates reads the files. It returns nil without tls-cert.
func newCertificates(s *settings.Settings) (*certificates, error) {
	if s.TLSCert == "" {
		return nil, nil //nolint:nilnil // nil means no TLS
	}
	c := &certificates{id: s.ID, certFile: s.TLSCert, keyFile: s.TLSKey, caFile: s.TLSCA, requireClient: s.TLSClients}
	return c, c.reload()
}

// reload reads the files again. The old content stays in effect if that fails, if the
// certificate does not name the member, or if the CA did not sign it.
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
	fresh.caExpiry = firstExpiry(text)
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read tls-cert (%s) and tls-key (%s): %w", c.certFile, c.keyFile, err)
	}
	if err := transport.CheckOwn(loaded, c.id); err != nil {
		return fmt.Errorf("tls-cert (%s): %w", c.certFile, err)
	}
	fresh.own = &loaded
	if err := fresh.check(); err != nil {
		return fmt.Errorf("tls-ca (%s) has not signed tls-cert (%s), so the other members would refuse it: %w", c.caFile,
			c.certFile, err)
	}
	c.current.Store(fresh)
	return nil
}

// check returns an error if the CA has not signed the own certificate. One that has expired is not an error: it can be
// renewed while the member runs.
func (l *loadedCertificates) check() error {
	options := x509.VerifyOptions{Roots: l.ca, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, der := range l.own.Certificate[1:] {
		if between, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(between)
		}
	}
	_, err := l.own.Leaf.Verify(options)
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		return err
	}
	return nil
}

// report logs a certificate that was not reported before. It must not be called
// concurrently.
func (c *certificates) report(logger *slog.Logger) {
	if c == nil {
		return
	}
	leaf := c.current.Load().own.Leaf
	sum := sha256.Sum256(leaf.Raw)
	if fingerprint := hex.EncodeToString(sum[:]); fingerprint != c.reported {
		logger.Info("certificate loaded", "file", c.certFile, "sha256", fingerprint, "former", c.reported, "expires",
			leaf.NotAfter)
		c.reported = fingerprint
	}
}

// firstExpiry returns when the first of the certificates in a PEM text expires. It ignores
// blocks that are not certificates, as x509.CertPool does.
func firstExpiry(text []byte) (first time.Time) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first.IsZero() || certificate.NotAfter.Before(first)) {
			first = certificate.NotAfter
		}
	}
	return first
}

// expiries returns when the certificates expire, by their use, for metrics.
func (c *certificates) expiries() map[string]time.Time {
	if c == nil {
		return nil
	}
	now := c.current.Load()
	return map[string]time.Time{"own": now.own.Leaf.NotAfter, "ca": now.caExpiry}
}

// config returns the configuration of a new connection between members, with the certificates of now: both sides
// present one. It returns nil without TLS.
func (c *certificates) config() *tls.Config {
	if c == nil {
		return nil
	}
	now := c.current.Load()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*now.own}, RootCAs: now.ca,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: now.ca}
}

// raft returns config, or nil without TLS.
func (c *certificates) raft() func() *tls.Config {
	if c == nil {
		return nil
	}
	return c.config
}

// api returns the TLS configuration of the API, which requires a client certificate only if the settings do.
func (c *certificates) api() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.config()
			if !c.requireClient {
				config.ClientAuth = tls.NoClientCert
			}
			return config, nil
		}}
}
