package testserver

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
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority for one test. Its certificates are valid for
// 127.0.0.1, on both sides of a connection.
type Authority struct {
	Pool *x509.CertPool // the authority itself

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, Pool: x509.NewCertPool()}
	template := lasting("test authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = a.newKey()
	a.cert = a.sign(template, template, a.key)
	a.Pool.AddCert(a.cert)
	return a
}

// Issue returns a certificate with a common name. change may change the template.
func (a *Authority) Issue(name string, change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	template := lasting(name)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if change != nil {
		change(template)
	}
	key := a.newKey()
	leaf := a.sign(template, a.cert, key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// SaveCA writes the certificate of the authority to ca.pem in a folder.
func (a *Authority) SaveCA(dir string) {
	a.t.Helper()
	a.write(filepath.Join(dir, "ca.pem"), "CERTIFICATE", a.cert.Raw)
}

// Save writes a certificate and its key to NAME.pem and NAME.key in a folder.
func (a *Authority) Save(dir, name string, cert tls.Certificate) {
	a.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		a.t.Fatalf("encode a key: %v", err)
	}
	a.write(filepath.Join(dir, name+".pem"), "CERTIFICATE", cert.Certificate[0])
	a.write(filepath.Join(dir, name+".key"), "PRIVATE KEY", key)
}

func (a *Authority) write(path, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// lasting returns a template that does not expire during a test.
func lasting(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatalf("create a key: %v", err)
	}
	return key
}

// sign returns the certificate of a key, signed with the key of the authority.
func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatalf("sign a certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatalf("parse a certificate: %v", err)
	}
	return cert
}
