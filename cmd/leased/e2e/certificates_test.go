//go:build unix

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/raftstore/transport"
)

// authority is the CA of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	var der []byte
	a.key, der = a.sign(template, nil, nil)
	var err error
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.write("ca.pem", "CERTIFICATE", der)
	a.last = 1
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	require.NoError(a.t, err)
	return key, der
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// issue writes a certificate for an address that names members, and returns its serial
// number.
func (a *authority) issue(name, ip string, members ...string) (serial int64) {
	a.t.Helper()
	a.last++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.ParseIP(ip)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, id := range members {
		template.URIs = append(template.URIs, transport.MemberURI(id))
	}
	key, der := a.sign(template, a.cert, a.key)
	a.write(name+".pem", "CERTIFICATE", der)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".key", "PRIVATE KEY", text)
	return a.last
}

// flags returns the TLS flags of a server, or of a client with a certificate.
func (a *authority) flags(name string) []string {
	return []string{"--tls-cert=" + filepath.Join(a.dir, name+".pem"), "--tls-key=" + filepath.Join(a.dir, name+".key"), a.ca()}
}

func (a *authority) ca() string { return "--tls-ca=" + filepath.Join(a.dir, "ca.pem") }

// alsoTrust adds another CA to the file of this one.
func (a *authority) alsoTrust(other *authority) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(other.dir, "ca.pem"))
	require.NoError(a.t, err)
	file, err := os.OpenFile(filepath.Join(a.dir, "ca.pem"), os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(a.t, err)
	_, err = file.Write(text)
	require.NoError(a.t, err)
	require.NoError(a.t, file.Close())
}
