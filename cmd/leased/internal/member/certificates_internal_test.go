package member

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
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/devca"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/raftstore/transport"
)

// selfSigned writes a self-signed certificate for loopback that names a member, and its
// key.
func selfSigned(t *testing.T, dir, name, id string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		URIs: []*url.URL{transport.MemberURI(id)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certFile, keyFile
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

// handshake performs a TLS handshake and returns the error of each side.
func handshake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	result := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = tls.Server(conn, server).Handshake()
			conn.Close()
		}
		result <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	clientErr = tls.Client(conn, client).Handshake()
	if clientErr != nil {
		conn.Close()
	}
	return <-result, clientErr
}

// A reload changes the CA for incoming and outgoing connections, of members and of
// the API.
func TestReloadCA(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfSigned(t, dir, "old", "n1")
	nextCert, nextKey := selfSigned(t, dir, "next", "n1")
	ca := filepath.Join(dir, "ca.pem")
	trust := func(files ...string) {
		var text []byte
		for _, file := range files {
			part, err := os.ReadFile(file)
			require.NoError(t, err)
			text = append(text, part...)
		}
		require.NoError(t, os.WriteFile(ca, text, 0o600))
	}
	trust(cert)
	c, err := newCertificates(&settings.Settings{ID: "n1", TLSCert: cert, TLSKey: key, TLSCA: ca, TLSClients: true})
	require.NoError(t, err)
	api, members := c.api(), c.raft() // existing configurations follow the reload
	calls := func() *tls.Config {
		config := members()
		config.ServerName = "127.0.0.1"
		return config
	}
	nextPair, err := tls.LoadX509KeyPair(nextCert, nextKey)
	require.NoError(t, err)
	// Only the other side is checked.
	other := &tls.Config{Certificates: []tls.Certificate{nextPair}, InsecureSkipVerify: true} //nolint:gosec

	connect := func() (errs []error) {
		for _, server := range []*tls.Config{api, members()} {
			serverErr, _ := handshake(t, server, other)
			errs = append(errs, serverErr)
		}
		_, clientErr := handshake(t, other, calls())
		return append(errs, clientErr)
	}
	for _, err := range connect() {
		require.Error(t, err, "a certificate of an unknown CA was accepted")
	}
	trust(cert, nextCert)
	require.NoError(t, c.reload())
	for _, err := range connect() {
		require.NoError(t, err)
	}
	trust(cert)
	require.NoError(t, c.reload())
	for _, err := range connect() {
		require.Error(t, err, "a certificate of a removed CA was accepted")
	}
}

// The metrics have the expiry of the certificate, and the first expiry in the CA file.
func TestCertificateExpiries(t *testing.T) {
	dir := t.TempDir()
	other, _ := selfSigned(t, dir, "other", "n2") // made earlier, so it does not expire later
	cert, key := selfSigned(t, dir, "own", "n1")
	var authorities []byte
	for _, file := range []string{cert, other} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		authorities = append(authorities, text...)
	}
	authorities = append(authorities, "-----BEGIN NOTE-----\nYQ==\n-----END NOTE-----\n"...)
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, authorities, 0o600))
	c, err := newCertificates(&settings.Settings{ID: "n1", TLSCert: cert, TLSKey: key, TLSCA: ca})
	require.NoError(t, err)
	earlier, err := tls.LoadX509KeyPair(other, filepath.Join(dir, "other.key"))
	require.NoError(t, err)
	require.Equal(t, map[string]time.Time{"own": c.current.Load().own.Leaf.NotAfter, "ca": earlier.Leaf.NotAfter},
		c.expiries())
	require.Nil(t, (*certificates)(nil).expiries(), "without TLS there are none")
}

// The certificate of a member names it. A reload with another one changes nothing.
func TestCertificateNamesTheMember(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfSigned(t, dir, "own", "n1")
	other, otherKey := selfSigned(t, dir, "other", "n2")
	_, err := newCertificates(&settings.Settings{ID: "n1", TLSCert: other, TLSKey: otherKey, TLSCA: other})
	require.ErrorIs(t, err, transport.ErrConfig)
	require.ErrorContains(t, err, other)
	require.ErrorContains(t, err, "leased://member/n1")

	c, err := newCertificates(&settings.Settings{ID: "n1", TLSCert: cert, TLSKey: key, TLSCA: cert})
	require.NoError(t, err)
	before := c.current.Load()
	copyFile(t, other, cert)
	copyFile(t, otherKey, key)
	require.ErrorIs(t, c.reload(), transport.ErrConfig)
	require.Same(t, before, c.current.Load())
}

// A member whose certificate the CA has not signed would be refused by the others: it does not start. A reload of such
// files changes nothing. A certificate that has expired can be renewed later.
func TestCertificateIsSignedByTheCA(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfSigned(t, dir, "own", "n1")
	other, _ := selfSigned(t, dir, "other", "n1")
	s := &settings.Settings{ID: "n1", TLSCert: cert, TLSKey: key, TLSCA: other}
	_, err := newCertificates(s)
	require.ErrorContains(t, err, "tls-ca ("+other+") has not signed tls-cert ("+cert+")")

	s.TLSCA = filepath.Join(dir, "ca.pem")
	copyFile(t, cert, s.TLSCA)
	c, err := newCertificates(s)
	require.NoError(t, err)
	before := c.current.Load()
	copyFile(t, other, s.TLSCA)
	require.ErrorContains(t, c.reload(), "has not signed")
	require.Same(t, before, c.current.Load())

	ca, err := devca.Open(filepath.Join(dir, "ca"), time.Now().Add(-48*time.Hour))
	require.NoError(t, err)
	expired, err := ca.Member("n1", nil, devca.Options{Lifetime: time.Hour})
	require.NoError(t, err)
	_, err = newCertificates(&settings.Settings{ID: "n1", TLSCert: expired.CertFile, TLSKey: expired.KeyFile,
		TLSCA: expired.CAFile})
	require.NoError(t, err)
}
