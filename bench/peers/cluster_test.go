package peers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/internal/testserver"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	servers := peers.Cluster{Servers: []*testserver.Process{sleeper(t)}}
	pids := servers.Pids()
	require.Len(t, pids, 1)
	servers.Stop()
	require.Empty(t, servers.Pids())
	require.NoError(t, servers.Restart())
	require.NotEmpty(t, servers.Pids())
	require.NotEqual(t, pids, servers.Pids())
}

// sleeper returns a process that the test kills.
func sleeper(t *testing.T) *testserver.Process {
	p := &testserver.Process{Name: "sleep", Args: []string{"sleep", "1000"}, Log: filepath.Join(t.TempDir(), "log")}
	require.NoError(t, p.Start())
	t.Cleanup(p.Kill)
	return p
}

func TestTree(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	require.Equal(t, []int{p.Pid()}, peers.Tree(p.Pid()))
	require.Contains(t, peers.Tree(os.Getpid()), p.Pid())
}
