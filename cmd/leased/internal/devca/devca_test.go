package devca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/devca"
	"github.com/leased-project/leased/raftstore/transport"
)

var options = devca.Options{Lifetime: 24 * time.Hour}

func open(t *testing.T, dir string) *devca.CA {
	t.Helper()
	ca, err := devca.Open(dir, time.Now())
	require.NoError(t, err)
	return ca
}

// load returns the certificate of an Issued, after it has checked that the key fits.
func load(t *testing.T, i devca.Issued) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(i.CertFile, i.KeyFile)
	require.NoError(t, err)
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	require.True(t, ok)
	require.Equal(t, elliptic.P256(), key.Curve)
	return pair.Leaf
}

// verify checks a certificate against the CA file beside it.
func verify(t *testing.T, i devca.Issued, host string, usage x509.ExtKeyUsage) error {
	t.Helper()
	text, err := os.ReadFile(i.CAFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	_, err = load(t, i).Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

// The certificate of a member names its id, is valid for its hosts, and works on both
// sides of a connection.
func TestMember(t *testing.T) {
	t.Parallel()
	ca := open(t, filepath.Join(t.TempDir(), "tls"))
	require.True(t, ca.Created())
	i, err := ca.Member("node2", []string{"10.0.0.2", "node2.example.com"}, options)
	require.NoError(t, err)
	require.False(t, i.Renewed)
	cert := load(t, i)
	require.Equal(t, []string{"node2"}, transport.MemberIDs(cert))
	require.Equal(t, "node2", cert.Subject.CommonName)
	require.False(t, cert.IsCA)
	for _, host := range []string{"node2", "10.0.0.2", "node2.example.com", "localhost", "127.0.0.1", "::1"} {
		require.NoError(t, verify(t, i, host, x509.ExtKeyUsageServerAuth), host)
		require.Contains(t, i.Hosts, host)
	}
	require.NoError(t, verify(t, i, "", x509.ExtKeyUsageClientAuth))
	require.Error(t, verify(t, i, "node1", x509.ExtKeyUsageServerAuth))
}

// The certificate of a client names the user, and is neither a member's nor a
// server's.
func TestClientIsNoMember(t *testing.T) {
	t.Parallel()
	i, err := open(t, t.TempDir()).Client("alice", options)
	require.NoError(t, err)
	cert := load(t, i)
	require.Equal(t, "alice", cert.Subject.CommonName)
	require.Empty(t, transport.MemberIDs(cert))
	require.Empty(t, cert.URIs)
	require.Empty(t, cert.DNSNames)
	require.Empty(t, cert.IPAddresses)
	require.NoError(t, verify(t, i, "", x509.ExtKeyUsageClientAuth))
	require.Error(t, verify(t, i, "", x509.ExtKeyUsageServerAuth))
}

// Only the owner can read the keys.
func TestPermissions(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	ca := open(t, dir)
	i, err := ca.Member("node1", nil, options)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), mode(t, dir))
	require.Equal(t, os.FileMode(0o700), mode(t, filepath.Dir(i.KeyFile)))
	require.Equal(t, os.FileMode(0o600), mode(t, ca.KeyFile()))
	require.Equal(t, os.FileMode(0o600), mode(t, i.KeyFile))
	require.NoFileExists(t, filepath.Join(filepath.Dir(i.KeyFile), "ca.key"))
	left, err := filepath.Glob(filepath.Join(dir, "*", ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left, "no temporary files stay")
}

// A second run uses the same CA. It keeps the key and the hosts of a certificate that
// it renews.
func TestRenew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := open(t, dir).Member("node1", []string{"10.0.0.1"}, options)
	require.NoError(t, err)
	key, cert := read(t, first.KeyFile), load(t, first)
	authority := read(t, filepath.Join(dir, "ca.pem"))

	ca := open(t, dir)
	require.False(t, ca.Created())
	second, err := ca.Member("node1", nil, devca.Options{Lifetime: 48 * time.Hour})
	require.NoError(t, err)
	require.True(t, second.Renewed)
	require.Equal(t, first.Hosts, second.Hosts)
	require.Equal(t, key, read(t, second.KeyFile))
	require.True(t, load(t, second).NotAfter.After(cert.NotAfter))
	require.NotEqual(t, cert.SerialNumber, load(t, second).SerialNumber)
	require.Equal(t, authority, read(t, filepath.Join(dir, "ca.pem")))
	require.NoError(t, verify(t, second, "10.0.0.1", x509.ExtKeyUsageServerAuth))

	third, err := ca.Member("node1", []string{"10.0.0.9"}, options)
	require.NoError(t, err)
	require.NotContains(t, third.Hosts, "10.0.0.1", "given hosts replace the former ones")
}

// Only Force replaces a key, or what this CA has not made for the same purpose.
func TestNothingIsReplacedSilently(t *testing.T) {
	t.Parallel()
	foreign, err := open(t, t.TempDir()).Member("node1", nil, options)
	require.NoError(t, err)
	lost := []string{"certificate of another CA", "no certificate"}
	for name, damage := range map[string]func(t *testing.T, i devca.Issued){
		"certificate of another CA": func(t *testing.T, i devca.Issued) {
			require.NoError(t, os.WriteFile(i.CertFile, []byte(read(t, foreign.CertFile)), 0o600))
			require.NoError(t, os.WriteFile(i.KeyFile, []byte(read(t, foreign.KeyFile)), 0o600))
		},
		"another key": func(t *testing.T, i devca.Issued) {
			require.NoError(t, os.WriteFile(i.KeyFile, []byte(read(t, foreign.KeyFile)), 0o600))
		},
		"no certificate": func(t *testing.T, i devca.Issued) { require.NoError(t, os.Remove(i.CertFile)) },
		"no key":         func(t *testing.T, i devca.Issued) { require.NoError(t, os.Remove(i.KeyFile)) },
		"damaged key": func(t *testing.T,
			i devca.Issued) {
			require.NoError(t, os.WriteFile(i.KeyFile, []byte("key"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ca := open(t, dir)
			i, err := ca.Member("node1", []string{"db.example"}, options)
			require.NoError(t, err)
			damage(t, i)
			before, _ := os.ReadFile(i.KeyFile)
			_, err = ca.Member("node1", nil, options)
			require.ErrorIs(t, err, devca.ErrExists)
			require.ErrorContains(t, err, "--force")
			after, _ := os.ReadFile(i.KeyFile)
			require.Equal(t, before, after)
			i, err = ca.Member("node1", nil, devca.Options{Lifetime: time.Hour, Force: true})
			require.NoError(t, err)
			require.NotEqual(t, string(before), read(t, i.KeyFile))
			require.NoError(t, verify(t, i, "node1", x509.ExtKeyUsageServerAuth))
			require.Equal(t, !slices.Contains(lost, name), slices.Contains(i.Hosts, "db.example"), "hosts are kept")
		})
	}
	t.Run("member and client of one name", func(t *testing.T) {
		t.Parallel()
		ca := open(t, t.TempDir())
		_, err := ca.Member("node1", nil, options)
		require.NoError(t, err)
		_, err = ca.Client("node1", options)
		require.ErrorIs(t, err, devca.ErrExists)
		_, err = ca.Client("alice", options)
		require.NoError(t, err)
		_, err = ca.Member("alice", nil, options)
		require.ErrorIs(t, err, devca.ErrExists)
	})
}

// A folder with half a CA, a wrong key or an expired CA is refused and left alone.
func TestUnusableCA(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	open(t, other)
	for name, damage := range map[string]func(t *testing.T, dir string){
		"no key":         func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "ca.key"))) },
		"no certificate": func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "ca.pem"))) },
		"another key": func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.key"), []byte(read(t, filepath.Join(other, "ca.key"))),
				0o600))
		},
		"not a CA": func(t *testing.T, dir string) {
			i, err := open(t, dir).Client("alice", options)
			require.NoError(t, err)
			require.NoError(t, os.Rename(i.CertFile, filepath.Join(dir, "ca.pem")))
			require.NoError(t, os.Rename(i.KeyFile, filepath.Join(dir, "ca.key")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open(t, dir)
			damage(t, dir)
			_, err := devca.Open(dir, time.Now())
			require.ErrorIs(t, err, devca.ErrCA)
		})
	}
	_, err := devca.Open(other, time.Now().AddDate(11, 0, 0))
	require.ErrorIs(t, err, devca.ErrCA)
	require.ErrorContains(t, err, "expired")
}

// Names that are no file names, and hosts that are no hosts, are refused.
func TestNames(t *testing.T) {
	t.Parallel()
	ca := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "../x", "a/b", "-x", "ca.pem", "ca.key", "a b", "a\nb", "*"} {
		_, err := ca.Member(name, nil, options)
		require.ErrorIs(t, err, devca.ErrName, name)
		_, err = ca.Client(name, options)
		require.ErrorIs(t, err, devca.ErrName, name)
	}
	for _, host := range []string{"a b", "http://x", "x:7420", "-x", "a..b", "*"} {
		_, err := ca.Member("node1", []string{host}, options)
		require.ErrorIs(t, err, devca.ErrName, host)
	}
}

// A certificate is not valid longer than its CA.
func TestLifetimeEndsWithTheCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir)
	later, err := devca.Open(dir, time.Now().AddDate(9, 0, 0))
	require.NoError(t, err)
	i, err := later.Client("alice", devca.Options{Lifetime: 3650 * 24 * time.Hour})
	require.NoError(t, err)
	require.True(t, i.Expires.Before(time.Now().AddDate(10, 0, 1)))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
