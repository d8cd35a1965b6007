package redlockadapter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// A standalone process does not recover nodes that a service has used: the log of the
// service knows which tokens they may accept.
func TestStandaloneProcessDoesNotRecoverNodesOfAService(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1, testserver.RedisAppendOnly()).withShortQuarantine().init(t)
	b := f.backend(t)
	goal := recovery.Goal{Version: 9, Fleet: voter(t, b, 0).Fleet, Floor: 5, Ceiling: fencing.MaxToken}
	require.NoError(t, b.Advance(testContext(t), 0, serverOf(t, b, 0), goal)) // as the service does
	f.servers[0].Stop()
	require.NoError(t, f.servers[0].Start())
	waitFor(t, func() bool {
		s := b.NodeStatuses(testContext(t))[0]
		return s.Err == nil && s.Joining != ""
	}, "the keeper has seen the node")
	waitFor(t, func() bool {
		_, err := b.Acquire(testContext(t), engine.NewSessionID(), f.config.MaxTTL, request(1, "a"))
		require.Error(t, err)
		s := b.NodeStatuses(testContext(t))[0]
		return s.Err == nil && s.Quarantine == 0
	}, "the quarantine is over")
	require.ErrorContains(t, redlockadapter.Init(testContext(t), f.config, fencing.None), "belong to a service")
	require.Nil(t, b.NodeStatuses(testContext(t))[0].Report.Live)
}
