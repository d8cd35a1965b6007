//go:build linux

package torture

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// authority is the certificate authority of one run. Members that do not listen on the
// loopback interface require certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	template := a.template("torture")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, der, err := sign(template, template, nil)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.key = key
	return a, writePEM(a.ca(), "CERTIFICATE", der)
}

func (a *authority) ca() string { return filepath.Join(a.dir, "ca.pem") }

func (a *authority) template(name string) *x509.Certificate {
	a.last++
	now := engine.SystemClock().Now().Time()
	return &x509.Certificate{SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour)}
}

// issue writes the certificate of a member at an address and returns the flags that use it.
func (a *authority) issue(name, ip string) ([]string, error) {
	template := a.template(name)
	template.IPAddresses = []net.IP{net.ParseIP(ip)}
	template.URIs = []*url.URL{transport.MemberURI(name)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key, der, err := sign(template, a.cert, a.key)
	if err != nil {
		return nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert, keyFile := filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	if err := writePEM(cert, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	if err := writePEM(keyFile, "PRIVATE KEY", text); err != nil {
		return nil, err
	}
	return []string{"--tls-cert=" + cert, "--tls-key=" + keyFile, "--tls-ca=" + a.ca()}, nil
}

// sign creates a key and its certificate, self-signed if by is nil.
func sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	return key, der, err
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// trust returns the TLS configuration of a client.
func trust(ca string) (*tls.Config, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate", ca)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}
