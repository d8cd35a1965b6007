//go:build linux

package abuse

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

// certificate says what a certificate contains.
type certificate struct {
	name    string
	member  string // the member id in it; empty for a client
	expired bool
}

// issued is a certificate and its files.
type issued struct {
	tls       tls.Certificate
	cert, key string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		IsCA:                  true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{cert: cert, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// issue makes a certificate for loopback.
func (a *authority) issue(t testing.TB, c certificate) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: c.name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	if c.member != "" {
		template.URIs = []*url.URL{{Scheme: "leased", Host: "member", Path: "/" + c.member}}
	}
	if c.expired {
		template.NotAfter = time.Now().Add(-time.Minute)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	i := issued{tls: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, cert: filepath.Join(dir, "cert.pem"),
		key: filepath.Join(dir, "key.pem")}
	writePEM(t, i.cert, "CERTIFICATE", der)
	writePEM(t, i.key, "PRIVATE KEY", keyDER)
	return i
}

// flags are those of a server with this certificate.
func (i issued) flags(ca *authority) []string {
	return []string{"--tls-cert=" + i.cert, "--tls-key=" + i.key, "--tls-ca=" + ca.file}
}

// client is the TLS configuration of a client that trusts a CA.
func (a *authority) client(own ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: own}
}

// httpClient returns a client with a certificate.
func (s *server) httpClient(ca *authority, own issued) *http.Client {
	transport := &http.Transport{TLSClientConfig: ca.client(own.tls)}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ready reports whether the server serves.
func (s *server) ready(client *http.Client) bool {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	response, err := client.Get(scheme + "://" + s.api + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// The API port with tls-clients accepts only certificates of its CA that have not
// expired, and the Raft port only those of its members.
func TestExpiredAndForeignCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	s := launch(t, append(ca.issue(t, certificate{name: "n1", member: "n1"}).flags(ca), "--tls-clients")...)
	s.tls = true
	good := ca.issue(t, certificate{name: "client"})
	client := s.httpClient(ca, good)
	eventually(t, "the server is ready", func() bool { return s.ready(client) })
	require.NoError(t, handshake(s.api, ca.client(good.tls)))
	forms := map[string][]tls.Certificate{
		"none":                         nil,
		"expired":                      {ca.issue(t, certificate{name: "client", expired: true}).tls},
		"of another CA":                {other.issue(t, certificate{name: "client"}).tls},
		"of another CA, for a member":  {other.issue(t, certificate{name: "n1", member: "n1"}).tls},
		"expired, for a member":        {ca.issue(t, certificate{name: "n1", member: "n1", expired: true}).tls},
		"self-signed CA of the client": {{Certificate: [][]byte{other.cert.Raw}, PrivateKey: other.key}},
	}
	for name, own := range forms {
		require.Error(t, handshake(s.api, sent(ca.client(own...))), "API port, certificate %s", name)
		require.Error(t, handshake(s.raft, sent(ca.client(own...))), "Raft port, certificate %s", name)
	}
	require.Error(t, handshake(s.raft, sent(ca.client(good.tls))), "Raft port, certificate of a client")
	old := ca.client(good.tls)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	require.Error(t, handshake(s.api, old), "TLS 1.1")
	require.Error(t, handshake(s.api, other.client(good.tls)), "a client does not trust a server of another CA")
	s.running()
	require.True(t, s.ready(client))
	t.Logf("%d kinds of certificates refused on two ports", len(forms)+1)
}

// sent makes a client send its certificate even if the server does not accept its CA.
func sent(config *tls.Config) *tls.Config {
	if len(config.Certificates) > 0 {
		own := config.Certificates[0]
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	return config
}
