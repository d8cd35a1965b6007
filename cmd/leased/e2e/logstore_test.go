//go:build unix

package e2e

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A data folder keeps its log store: a member with the other setting does not start,
// and the message names both stores.
func TestLogStoreIsFixed(t *testing.T) {
	t.Parallel()
	for kind, other := range map[string]string{"wal": "bolt", "bolt": "wal"} {
		data := filepath.Join(t.TempDir(), "one")
		args := []string{leased, "serve", "--id=one", "--data=" + data, "--listen=127.0.0.1:0", "--raft-listen=127.0.0.1:0",
			"--bootstrap-expect=1"}
		p := start(t, nil, append(args, "--log-store="+kind)...)
		p.says(leads)
		p.signal(syscall.SIGTERM)
		require.Zero(t, p.code())

		out, code := call(t, []string{"LEASED_LOG_STORE=" + other}, args...)
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "start the member: ")
		require.Contains(t, out, kind)
		require.Contains(t, out, other)
		require.Contains(t, out, data)

		p = start(t, nil, append(args, "--log-store="+kind)...) // the failed start has changed nothing
		p.says(leads)
	}
	out, code := call(t, nil, leased, "serve", "--data=d", "--bootstrap-expect=1", "--log-store=disk")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "log-store (disk, from --log-store) must be wal or bolt")
}

// A cluster on bolt grants locks, and survives the loss of its leader.
func TestClusterOnBolt(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	for i := range c.commands {
		c.commands[i] = append(c.commands[i], "--log-store=bolt")
		c.start(i)
	}
	c.complete()
	first := tokenOf(t, c.env(), "job/1", "--ttl=10m")
	killed := c.leader()
	c.servers[killed].signal(syscall.SIGKILL)
	c.servers[killed].code()
	exits(t, 120, c.env(), leased, "acquire", "job/1")
	must(t, c.env(), leased, "release", "job/1", "--token="+first)
	c.start(killed)
	c.complete()
	tokenOf(t, c.env(), "job/1")
}
