package fleet_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// A member that has just started has applied the fleet before it is connected to it. A caller tries again then, or
// asks another member: only a service without a fleet does not support the mode.
func TestMemberIsNotConnectedYet(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0",
		Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.Bootstrap())
	require.Eventually(t, node.Leads, time.Minute, time.Millisecond)
	c := fleet.NewConnection(node, nil, redlockadapter.Hooks{}, quiet)
	_, err = c.Backend()
	require.ErrorIs(t, err, engine.ErrUnsupported)
	_, err = node.SetFleet(context.Background(), engine.Fleet{Namespace: "test", Addresses: []string{"a:1"},
		MaxTTL: time.Minute}, 0, false, false)
	require.NoError(t, err)
	require.False(t, node.Topology().Fleet.IsZero())
	_, err = c.Backend()
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.NotErrorIs(t, err, engine.ErrUnsupported)
}
