package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/leased-project/leased/internal/wire"
)

// certs runs leased certs, and returns the exit code and the text that it prints or
// fails with.
func certs(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out strings.Builder
	root := newRoot()
	root.SetArgs(append([]string{"certs"}, args...))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil {
		code, _ = explain(err)
		return code, err.Error()
	}
	return 0, out.String()
}

// The output lists the files, and the settings that name them.
func TestCertsPrintsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	code, text := certs(t, "--dir", dir, "--member", "node1", "--member", "node2=10.0.0.2,node2.example.com", "--client",
		"alice", "--days", "30")
	require.Zero(t, code, text)
	for _, want := range []string{
		"created the CA " + dir + "/ca.pem; do not copy " + dir + "/ca.key",
		"member node1: new key and certificate, until ", "; valid for node1, localhost, 127.0.0.1, ::1\n",
		"valid for node2, node2.example.com, localhost, 10.0.0.2, 127.0.0.1, ::1\n",
		"  tls-ca: " + dir + "/node2/ca.pem\n  tls-cert: " + dir + "/node2/cert.pem\n  tls-key: " + dir + "/node2/key.pem\n",
		"client alice: new key and certificate, until ",
		"  export LEASED_CLIENT_TLS_CA=" + dir + "/alice/ca.pem LEASED_CLIENT_TLS_CERT=" + dir +
			"/alice/cert.pem LEASED_CLIENT_TLS_KEY=" + dir +
			"/alice/key.pem\n",
	} {
		require.Contains(t, text, want)
	}
	code, text = certs(t, "--dir", dir, "--member", "node1")
	require.Zero(t, code, text)
	require.Contains(t, text, "use the CA "+dir+"/ca.pem")
	require.Contains(t, text, "member node1: new certificate for the existing key, until ")
	code, text = certs(t, "--dir", dir, "--member", "node1", "--force")
	require.Zero(t, code, text)
	require.Contains(t, text, "member node1: new key and certificate")
}

// A browser imports the PKCS#12 file of a client, with the printed password.
func TestCertsForBrowsers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	code, text := certs(t, "--dir", dir, "--client", "alice", "--pkcs12")
	require.Zero(t, code, text)
	found := regexp.MustCompile(`import (\S+) into the browser; its password is (\S+)`).FindStringSubmatch(text)
	require.NotNil(t, found, text)
	data, err := os.ReadFile(found[1])
	require.NoError(t, err)
	_, cert, cas, err := pkcs12.DecodeChain(data, found[2])
	require.NoError(t, err)
	require.Equal(t, "alice", cert.Subject.CommonName)
	require.Len(t, cas, 1)
	require.NoError(t, cert.CheckSignatureFrom(cas[0]))
	info, err := os.Stat(found[1])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, _, _, err = pkcs12.DecodeChain(data, "")
	require.Error(t, err)
}

// Wrong arguments and refused replacements are usage errors, which say what to do.
func TestCertsErrors(t *testing.T) {
	dir := t.TempDir()
	code, text := certs(t, "--dir", dir, "--member", "node1")
	require.Zero(t, code, text)
	for want, args := range map[string][]string{
		"--dir is required":                                     {"--member", "node1"},
		"name members with --member ID":                         {"--dir", dir},
		"--pkcs12 makes files for clients":                      {"--dir", dir, "--member", "node1", "--pkcs12"},
		"days (0) must be a number from 1 to 3650":              {"--dir", dir, "--client", "a", "--days", "0"},
		`"../a" must have 1 to 64 characters`:                   {"--dir", dir, "--client", "../a"},
		`host "a b" of member "n" is neither a host name`:       {"--dir", dir, "--member", "n=a b"},
		"is the certificate of a member, not of a client; move": {"--dir", dir, "--client", "node1"},
	} {
		code, text := certs(t, args...)
		require.Equal(t, wire.ExitUsage, code, text)
		require.Contains(t, text, want)
	}
}
