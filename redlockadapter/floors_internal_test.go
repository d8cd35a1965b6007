package redlockadapter

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// A process that was granted a token refuses its nodes after a loss, until a quorum votes with a floor above that
// token.
func TestCheckFloors(t *testing.T) {
	b := newBackend(Config{Nodes: []*redis.Options{{Addr: "127.0.0.1:1"}, {Addr: "127.0.0.1:2"}, {Addr: "127.0.0.1:3"}}})
	defer b.cancel()
	const granted fencing.Token = 5
	b.grants.newest = granted
	statuses := make([]NodeStatus, 3)
	report := func(node int, server string, floor fencing.Token) {
		statuses[node].Report = recovery.Report{Reached: true, Server: server,
			Live: &recovery.State{Fleet: b.fingerprint, Floor: floor}}
	}
	empty := func(node int, server string) {
		statuses[node].Report = recovery.Report{Reached: true, Server: server}
	}
	check := func(granted fencing.Token) error { return b.keeper.checkFloors(granted, statuses) }
	report(0, "a", 0)
	report(1, "b", 0)
	require.NoError(t, check(0))
	require.NoError(t, check(granted), "they have granted it")
	report(2, "c", 0)
	require.NoError(t, check(granted), "it was reached late")

	empty(0, "d")
	require.NoError(t, check(granted), "the others know")
	empty(1, "b")
	require.ErrorContains(t, check(granted), "this process was granted tokens up to 5")
	statuses[0], statuses[1] = NodeStatus{}, NodeStatus{}
	require.ErrorIs(t, check(granted), engine.ErrUnavailable, "they are slow, and may have no state")
	report(0, "d", granted-1)
	report(1, "b", granted-1)
	require.ErrorContains(t, check(granted), "initialised with the floor 4, but this process was granted tokens up to 5")
	report(0, "d", granted)
	require.NoError(t, check(granted), "it and the third node are a quorum")
}
