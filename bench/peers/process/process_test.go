package process_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/peers/process"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	p, err := process.Start(filepath.Join(t.TempDir(), "log"), "sleep", "1000")
	require.NoError(t, err)
	require.Equal(t, []int{p.Pid()}, process.Servers{p}.Pids())
	p.Kill()
	require.False(t, p.Running())
	require.Zero(t, p.Pid())
	require.NoError(t, p.Restart())
	require.True(t, p.Running())
	p.Stop()
	require.Empty(t, process.Servers{p}.Pids())
}

func TestTree(t *testing.T) {
	t.Parallel()
	p, err := process.Start(filepath.Join(t.TempDir(), "log"), "sleep", "1000")
	require.NoError(t, err)
	defer p.Kill()
	require.Equal(t, []int{p.Pid()}, process.Tree(p.Pid()))
	require.Contains(t, process.Tree(os.Getpid()), p.Pid())
}

func TestFreeAddresses(t *testing.T) {
	t.Parallel()
	addresses, err := process.FreeAddresses(3)
	require.NoError(t, err)
	require.Len(t, addresses, 3)
	require.NotEqual(t, addresses[0], addresses[1])
}
