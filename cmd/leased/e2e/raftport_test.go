//go:build unix

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// intruder is the stream of a Raft transport that connects with any certificate.
type intruder struct {
	net.Listener
	config *tls.Config
}

func (i intruder) Dial(address raft.ServerAddress, _ time.Duration) (net.Conn, error) {
	return tls.Dial("tcp", string(address), i.config)
}

// intrude sends a member the request of a leader of term 100, with a certificate of a
// folder that `leased certs` has written, or with none.
func intrude(t *testing.T, dir, name, raftAddress string) error {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	require.NoError(t, err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	require.True(t, config.RootCAs.AppendCertsFromPEM(text))
	if name != "" {
		own, err := tls.LoadX509KeyPair(filepath.Join(dir, name, "cert.pem"), filepath.Join(dir, name, "key.pem"))
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{own}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: intruder{listener, config}, MaxPool: 1,
		Timeout: testTimeout,
		Logger:  hclog.NewNullLogger()})
	defer n.Close()
	return n.AppendEntries("a", raft.ServerAddress(raftAddress), &raft.AppendEntriesRequest{Term: 100,
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(name), Addr: []byte("127.0.0.1:1")}},
		&raft.AppendEntriesResponse{})
}

// The Raft port of a member accepts neither the certificate of a client, nor that of a
// member of another cluster, nor none, and the service goes on. The certificate of a
// member deposes the leader.
func TestRaftPortRefusesClients(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	dir := t.TempDir()
	must(t, nil, leased, "certs", "--dir="+dir, "--member=a", "--member=b", "--member=c", "--member=outsider",
		"--client=client")
	flags := func(name string) []string {
		return []string{"--tls-cert=" + filepath.Join(dir, name, "cert.pem"), "--tls-key=" +
			filepath.Join(dir, name, "key.pem"), "--tls-ca=" + filepath.Join(dir, "ca.pem")}
	}
	for i := range c.commands {
		c.commands[i] = append(append(c.commands[i], "--tls-clients"), flags(string(rune('a'+i)))...)
		c.start(i)
	}
	run := func() {
		eventually(t, func() bool {
			_, code := call(t, c.env(), append([]string{leased, "run", "nightly", "--wait=5s"},
				append(flags("client"), "--", "true")...)...)
			return code == 0
		}, "for a lock")
	}
	status := func(format string) string {
		out, _ := call(t, c.env(), append([]string{leased, "cluster", "status", "--output=" + format}, flags("client")...)...)
		return out
	}
	term := func() (largest uint64) { // of all members
		for _, found := range regexp.MustCompile(`"term": *"?(\d+)`).FindAllStringSubmatch(status("json"), -1) {
			n, err := strconv.ParseUint(found[1], 10, 64)
			require.NoError(t, err)
			largest = max(largest, n)
		}
		return largest
	}
	run()
	var leader int
	eventually(t, func() bool {
		out := status("table")
		leads := regexp.MustCompile(`(?m)^([abc]) +leader +yes`).FindStringSubmatch(out)
		if leads != nil {
			leader = int(leads[1][0] - 'a')
		}
		return leads != nil && len(regexp.MustCompile(`(?m)^[abc] +(leader|follower) +yes`).FindAllString(out, -1)) == 3
	}, "for three members")
	port := c.commands[leader][slices.Index(c.commands[leader], "--raft-listen")+1]
	for _, name := range []string{"client", "outsider", ""} {
		require.Error(t, intrude(t, dir, name, port), name)
		run()
		require.NotZero(t, term())
		require.Less(t, term(), uint64(100), name)
	}
	c.servers[leader].says("CN=client")
	c.servers[leader].says("leased://member/outsider")
	require.NoError(t, intrude(t, dir, string(rune('a'+(leader+1)%3)), port))
	eventually(t, func() bool { return term() >= 100 }, "for the new term")
	run()
}

// A member does not start with the certificate of another, and does not load one.
func TestServeChecksItsCertificate(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	dir := t.TempDir()
	must(t, nil, leased, "certs", "--dir="+dir, "--member=a", "--member=b", "--client=client")
	serve := append([]string{}, c.commands[0]...)
	for _, name := range []string{"b", "client"} {
		out, code := call(t, nil, append(serve, "--tls-cert="+filepath.Join(dir, name, "cert.pem"),
			"--tls-key="+filepath.Join(dir, name, "key.pem"),
			"--tls-ca="+filepath.Join(dir, "ca.pem"))...)
		require.NotZero(t, code)
		require.Contains(t, out, "leased://member/a")
	}
	own := filepath.Join(dir, "a")
	p := start(t, nil, append(serve, "--tls-cert="+filepath.Join(own, "cert.pem"),
		"--tls-key="+filepath.Join(own, "key.pem"), "--tls-ca="+filepath.Join(dir, "ca.pem"))...)
	p.says("waiting to form a cluster")
	for _, file := range []string{"cert.pem", "key.pem"} {
		text, err := os.ReadFile(filepath.Join(dir, "b", file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(own, file), text, 0o600))
	}
	p.signal(syscall.SIGHUP)
	p.says("reload failed")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
}
