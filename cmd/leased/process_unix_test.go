//go:build unix

package main

import (
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// Callers that use up their connections leave files for the log, snapshots and other members: a member that cannot open
// a file stops.
func TestConnectionsLeaveFiles(t *testing.T) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) })
	lower := before
	lower.Cur = 999
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower))
	for set, accepted := range map[int]int{10: 10, 333: 333, 20_000: 333} {
		s := &settings.Settings{}
		s.Limits.Connections = set
		limitConnections(s, slog.New(slog.DiscardHandler))
		require.Equal(t, accepted, s.Limits.Connections)
	}
}
