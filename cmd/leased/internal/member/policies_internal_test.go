package member

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

// A member sets the policies of its file in a new cluster. After a restart it brings
// back none that was deleted, and says which differ.
func TestFileSeedsANewClusterOnly(t *testing.T) {
	data := filepath.Join(t.TempDir(), "one")
	run := func() (*Member, <-chan string) {
		differ := make(chan string, 10)
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		settings.Flags(flags)
		require.NoError(t, flags.Parse([]string{"--id=one", "--data=" + data, "--listen=127.0.0.1:0",
			"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}))
		s, err := settings.Load(flags, func(string) (string, bool) { return "", false }, "")
		require.NoError(t, err)
		s.Policies = []lease.Policy{{Prefix: "kept/", Mode: lease.Correctness, TTL: time.Minute},
			{Prefix: "deleted/", Mode: lease.Correctness}}
		reader, writer := io.Pipe()
		t.Cleanup(func() { writer.Close() })
		go func() {
			text := make([]byte, 1<<12)
			for {
				n, err := reader.Read(text) // slog writes each line at once
				if err != nil {
					return
				}
				if line := string(text[:n]); strings.Contains(line, "policies of the configuration file differ") {
					differ <- line
				}
			}
		}()
		m, err := Start(testContext(t), s, "test", slog.New(slog.NewTextHandler(writer, nil)))
		require.NoError(t, err)
		return m, differ
	}
	m, _ := run()
	for topology := m.node.Topology(); len(topology.Policies.All()) < 2; {
		var err error
		topology, err = m.node.NextTopology(testContext(t), topology.Version)
		require.NoError(t, err)
	}
	_, err := m.node.DeletePolicy(testContext(t), "deleted/", 0, false)
	require.NoError(t, err)
	changed := lease.Policy{Prefix: "kept/", Mode: lease.Correctness, TTL: 2 * time.Minute}
	_, err = m.node.SetPolicy(testContext(t), changed, 0, false)
	require.NoError(t, err)
	require.NoError(t, m.Stop())

	m, differ := run()
	line := testserver.Receive(t, differ)
	all := m.node.Topology().Policies.All()
	require.NoError(t, m.Stop())
	require.Equal(t, []lease.Policy{changed}, all)
	require.Contains(t, line, "prefixes=kept/*,deleted/*")
}
