//go:build unix

package e2e

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/raftstore/transport"
)

// authority is the CA of a test, and its folder.
type authority struct {
	*testserver.Authority
	t   *testing.T
	dir string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{testserver.NewAuthority(t), t, t.TempDir()}
	a.SaveCA(a.dir)
	return a
}

// issue writes a certificate for an address that names members, and returns its serial
// number.
func (a *authority) issue(name, ip string, members ...string) (serial int64) {
	a.t.Helper()
	cert := a.Issue(name, func(template *x509.Certificate) {
		template.IPAddresses = []net.IP{net.ParseIP(ip)}
		for _, id := range members {
			template.URIs = append(template.URIs, transport.MemberURI(id))
		}
	})
	a.Save(a.dir, name, cert)
	return cert.Leaf.SerialNumber.Int64()
}

// flags returns the TLS flags of a server, or of a client with a certificate.
func (a *authority) flags(name string) []string {
	return []string{"--tls-cert=" + filepath.Join(a.dir, name+".pem"), "--tls-key=" + filepath.Join(a.dir, name+".key"),
		a.ca()}
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
