package peers

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	var servers Cluster
	p := sleeper(t)
	servers.add(p, p.Kill)
	pids := servers.Pids()
	require.Len(t, pids, 1)
	servers.Stop()
	require.Empty(t, servers.Pids())
	require.NoError(t, p.Start())
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

func TestChildren(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	require.Empty(t, children([]int{p.Pid()}))
	require.Contains(t, children([]int{os.Getpid()}), p.Pid())
}

// Several kinds use the servers that the first one starts, until the last one stops them.
func TestSharing(t *testing.T) {
	t.Parallel()
	var starts, stops int
	start := sharing(func(context.Context, string) (*Cluster, error) {
		starts++
		return &Cluster{stops: []func(){func() { stops++ }}}, nil
	})
	first, err := start(t.Context(), "")
	require.NoError(t, err)
	second, err := start(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 1, starts)
	first.Stop()
	require.Zero(t, stops)
	second.Stop()
	require.Equal(t, 1, stops)
}
