package remote_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

func version(n uint64) *engine.Topology { return &engine.Topology{Version: n, Ready: true} }

func TestTopologyFollowsAnyMember(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.topology, b.topology = version(0), version(0)
	service := backend(t, remote.Config{}, a, b)
	require.NoError(t, service.AwaitTopology(bounded(t)), "version 0 is a topology")

	waiting := make(chan engine.Topology, 1)
	go func() {
		next, err := service.NextTopology(bounded(t), 0)
		require.NoError(t, err)
		waiting <- next
	}()
	both := []*member{a, b}
	for _, m := range both {
		m.set(func() { m.topology = version(5) })
	}
	require.Equal(t, uint64(5), (<-waiting).Version)
	require.Equal(t, uint64(5), service.Topology().Version)

	// The member that the client follows stops; the other one is behind for a while.
	followed, other := a, b
	if b.watchers() > 0 {
		followed, other = b, a
	}
	other.set(func() { other.topology = version(3) })
	followed.server.Stop()
	eventually(t, "the client follows the other member", func() bool { return other.watchers() > 0 })
	require.Equal(t, uint64(5), service.Topology().Version, "an older topology does not replace a newer one")
	other.set(func() { other.topology = version(6) })
	next, err := service.NextTopology(bounded(t), 5)
	require.NoError(t, err)
	require.Equal(t, uint64(6), next.Version)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = service.NextTopology(ctx, 6)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAwaitTopologyReturnsErrors(t *testing.T) {
	silent := startMember(t)
	service := backend(t, remote.Config{Timeout: 100 * time.Millisecond}, silent)
	err := service.AwaitTopology(bounded(t))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, silent.address)

	rejecting := startMember(t)
	rejecting.rejects = wire.ErrUnauthenticated
	service = backend(t, remote.Config{}, rejecting)
	require.ErrorIs(t, service.AwaitTopology(bounded(t)), engine.ErrInvalid, "waiting cannot help")

	accepting := startMember(t)
	accepting.topology = version(1)
	require.NoError(t, backend(t, remote.Config{}, rejecting, accepting).AwaitTopology(bounded(t)),
		"one member that accepts the caller is enough")
}

func TestRefreshTopologyFollowsAnotherMember(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.topology, b.topology = version(1), version(1)
	service := backend(t, remote.Config{}, a, b)
	require.NoError(t, service.AwaitTopology(bounded(t)))
	stuck, other := a, b
	if b.watchers() > 0 {
		stuck, other = b, a
	}
	other.set(func() { other.topology = version(2) })
	require.Equal(t, uint64(1), service.Topology().Version, "the followed member does not know version 2")
	service.RefreshTopology()
	next, err := service.NextTopology(bounded(t), 1)
	require.NoError(t, err)
	require.Equal(t, uint64(2), next.Version)
	eventually(t, "the client has left the other member", func() bool { return stuck.watchers() == 0 })
}

// Callers that wait for a change ask again and again. They do not keep the client from following a member.
func TestRefreshTopologyIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.topology = version(1)
		service := backend(t, network.config(), m)
		require.NoError(t, service.AwaitTopology(limited(t)))
		followed := func() (times int) {
			time.Sleep(500 * time.Millisecond)
			m.set(func() { times = m.topologies })
			return times
		}
		for range 10 {
			service.RefreshTopology()
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 2, followed())
		for range 60 {
			service.RefreshTopology()
			time.Sleep(time.Second)
		}
		require.Equal(t, 7, followed(), "after 1, 2, 4, 8, 16 and 30 seconds")
		m.set(func() { m.topology = version(2) })
		_, err := service.NextTopology(limited(t), 1)
		require.NoError(t, err)
		service.RefreshTopology()
		require.Equal(t, 8, followed(), "a change ends the pause")
	})
}

// The user is not a part of the version: it is taken from a member that is behind, but not
// the policies of that member.
func TestUserFromAMemberThatIsBehind(t *testing.T) {
	m := startMember(t)
	m.topology = &engine.Topology{Version: 5, Ready: true, User: "alice"}
	service := backend(t, remote.Config{}, m)
	require.NoError(t, service.AwaitTopology(bounded(t)))
	m.set(func() { m.topology = &engine.Topology{Version: 3, User: "bob"} })
	eventually(t, "the other user is known", func() bool { return service.Topology().User == "bob" })
	require.Equal(t, uint64(5), service.Topology().Version, "the older topology is not used")
	require.True(t, service.Topology().Ready)
}
