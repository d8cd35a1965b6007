package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/lease/remote/wire"
)

func version(n uint64) *engine.Topology { return &engine.Topology{Version: n, Ready: true} }

func TestTopologyFollowsTheMembers(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.topology, b.topology = version(0), version(0)
	service := backend(t, nil, a, b)
	require.NoError(t, service.AwaitTopology(patient(t)), "version 0 is a topology too")

	waiting := make(chan engine.Topology, 1)
	go func() {
		next, err := service.NextTopology(patient(t), 0)
		require.NoError(t, err)
		waiting <- next
	}()
	both := []*member{a, b}
	for _, m := range both {
		m.set(func() { m.topology = version(5) })
	}
	require.Equal(t, uint64(5), (<-waiting).Version)
	require.Equal(t, uint64(5), service.Topology().Version)

	// The one that tells goes away; the other one is behind for a while.
	told, other := a, b
	if b.watchers() > 0 {
		told, other = b, a
	}
	other.set(func() { other.topology = version(3) })
	told.server.Stop()
	eventually(t, "the other member is asked", func() bool { return other.watchers() > 0 })
	require.Equal(t, uint64(5), service.Topology().Version, "a member that is behind takes nothing back")
	other.set(func() { other.topology = version(6) })
	next, err := service.NextTopology(patient(t), 5)
	require.NoError(t, err)
	require.Equal(t, uint64(6), next.Version)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = service.NextTopology(ctx, 6)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAwaitTopologyEnds(t *testing.T) {
	silent := startMember(t)
	service := backend(t, []remote.Option{remote.WithPatience(100 * time.Millisecond)}, silent)
	err := service.AwaitTopology(patient(t))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, silent.address)

	stranger := startMember(t)
	stranger.refuses = wire.ErrUnauthenticated
	service = backend(t, nil, stranger)
	require.ErrorIs(t, service.AwaitTopology(patient(t)), engine.ErrInvalid, "waiting does not help")

	welcome := startMember(t)
	welcome.topology = version(1)
	require.NoError(t, backend(t, nil, stranger, welcome).AwaitTopology(patient(t)), "one member that knows the caller is enough")
}

func TestRefreshTopologyAsksAnotherMember(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.topology, b.topology = version(1), version(1)
	service := backend(t, nil, a, b)
	require.NoError(t, service.AwaitTopology(patient(t)))
	stuck, other := a, b
	if b.watchers() > 0 {
		stuck, other = b, a
	}
	other.set(func() { other.topology = version(2) })
	require.Equal(t, uint64(1), service.Topology().Version, "the member that tells does not know yet")
	service.RefreshTopology()
	next, err := service.NextTopology(patient(t), 1)
	require.NoError(t, err)
	require.Equal(t, uint64(2), next.Version)
	require.Zero(t, stuck.watchers())
}
