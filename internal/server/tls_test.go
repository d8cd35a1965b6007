package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// certificate returns a self-signed certificate for loopback, and a pool that trusts it.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leased test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// With TLS, one port serves gRPC, HTTP/1.1 and clients that prefer HTTP/2.
func TestTLS(t *testing.T) {
	t.Parallel()
	own, pool := certificate(t)
	s := startServer(t, func(c *server.Config) { c.TLS = &tls.Config{Certificates: []tls.Certificate{own}} })

	backend := newClientWith(t, []string{s.Address()}, remote.Config{TLS: &tls.Config{RootCAs: pool}})
	session, err := backend.Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(t, err)
	require.NoError(t, session.Close(testContext(t)))

	for _, protocols := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}, nil} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, NextProtos: protocols},
			ForceAttemptHTTP2: len(protocols) == 2}
		response, err := (&http.Client{Transport: transport}).Post("https://"+s.Address()+"/v1/acquire", "application/json",
			strings.NewReader(`{"resource":"a","wait":"1ms"}`))
		require.NoError(t, err, protocols)
		require.Equal(t, "HTTP/1.1", response.Proto)
		response.Body.Close()
		transport.CloseIdleConnections()
	}

	_, err = newClientWith(t, []string{s.Address()}, remote.Config{Timeout: time.Second}).Inspect(testContext(t), "a")
	require.ErrorIs(t, err, engine.ErrUnavailable, "the port serves TLS only")
	_, err = newClientWith(t, []string{s.Address()},
		remote.Config{Timeout: time.Second, TLS: &tls.Config{}}).Inspect(testContext(t), "a")
	require.ErrorIs(t, err, engine.ErrUnavailable, "the client does not trust the certificate")
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	secure := &tls.Config{}
	require.NoError(t, server.CheckAddress("127.0.0.1:7420", nil))
	require.NoError(t, server.CheckAddress("[::1]:7420", nil))
	require.NoError(t, server.CheckAddress("0.0.0.0:7420", secure))
	for _, address := range []string{"0.0.0.0:7420", ":7420", "192.0.2.1:7420", "nonsense"} {
		err := server.CheckAddress(address, nil)
		require.ErrorIs(t, err, server.ErrConfig, address)
		require.ErrorContains(t, err, address)
	}
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer listener.Close()
	_, err = server.New(server.Config{Raft: raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(),
		Address: "127.0.0.1:0", Logger: quiet}}, listener)
	require.ErrorIs(t, err, server.ErrConfig)
}

// Connections with neither protocol are closed, and do not disturb others.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, text := range []string{"", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense nonsense nonsense",
		"GET", "\x16\x03\x01nonsense\r\n\r\n"} {
		conn, err := net.Dial("tcp", s.Address())
		require.NoError(t, err)
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
		conn.Close()
	}
	mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
}
