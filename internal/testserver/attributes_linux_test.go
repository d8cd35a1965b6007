package testserver_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// Who interrupts a program by Ctrl-C interrupts its whole group. What it has
// started here must still be there while it comes to its end in good order.
func TestCtrlCIsNotForServers(t *testing.T) {
	for name, pid := range map[string]int{
		"redis":    testserver.Redis(t).Pid(),
		"postgres": testserver.Postgres(t).Pid(),
	} {
		group, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		require.Equal(t, pid, group, "%s is in a group of its own", name)
	}
}
