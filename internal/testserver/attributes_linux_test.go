package testserver_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// Ctrl-C interrupts the whole process group of a program. The servers that it has
// started must keep running while it shuts down.
func TestServersHaveTheirOwnProcessGroup(t *testing.T) {
	for name, pid := range map[string]int{
		"redis":    testserver.Redis(t).Pid(),
		"postgres": testserver.Postgres(t).Pid(),
	} {
		group, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		require.Equal(t, pid, group, "%s must have its own process group", name)
	}
}
