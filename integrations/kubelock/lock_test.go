package kubelock_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/kubelock"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

var service = testserver.Shared{Start: testserver.StartService}

func TestMain(m *testing.M) {
	code := m.Run()
	service.Stop()
	os.Exit(code)
}

func dial(t *testing.T) *lease.Client {
	t.Helper()
	locks, err := client.Dial(testserver.Context(t), []string{service.Get(t).Addr})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

func candidate(t *testing.T, locks *lease.Client, resource fencing.Resource, identity string) *kubelock.Lock {
	t.Helper()
	lock, err := kubelock.New(locks, resource, identity)
	require.NoError(t, err)
	return lock
}

// record is what an elector writes to lead for ten minutes, unless it is renewed.
func record(identity string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 600}
}

// elected returns the lock of a candidate that leads.
func elected(t *testing.T, locks *lease.Client, resource fencing.Resource, identity string) *kubelock.Lock {
	t.Helper()
	lock := candidate(t, locks, resource, identity)
	testserver.Eventually(t, identity+" is elected", func() bool {
		return lock.Create(testserver.Context(t), record(identity)) == nil
	})
	return lock
}

func breakLease(t *testing.T, locks *lease.Client, lock *kubelock.Lock) {
	t.Helper()
	ctx := testserver.Context(t)
	require.NoError(t, locks.Break(ctx, lock.Lease().Resource(), lock.Lease().Token()))
}

// run runs client-go's election, and returns channels that receive when the candidate leads, and whom
// it sees as the leader.
func run(t *testing.T, ctx context.Context, lock *kubelock.Lock) (leads chan struct{}, leader chan string) {
	t.Helper()
	leads, leader = make(chan struct{}), make(chan string, 100)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: time.Minute, RenewDeadline: 30 * time.Second, RetryPeriod: 50 * time.Millisecond,
		ReleaseOnCancel: true, Name: "test",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { leader <- identity },
		},
	})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	t.Cleanup(func() { <-done })
	return leads, leader
}

// One candidate leads. The other one sees who, and leads with a newer token when the first one stops.
func TestElection(t *testing.T) {
	t.Parallel()
	locks := dial(t)
	first, second := candidate(t, locks, "election", "first"), candidate(t, locks, "election", "second")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	leads, leader := run(t, ctx, first)
	testserver.Receive(t, leads)
	require.Equal(t, "first", testserver.Receive(t, leader))

	other, stopOther := context.WithCancel(t.Context())
	defer stopOther()
	leads, leader = run(t, other, second)
	require.Equal(t, "first", testserver.Receive(t, leader))
	require.Nil(t, second.Lease())
	stop()
	testserver.Receive(t, leads)
	require.True(t, second.Lease().Token().Newer(first.Lease().Token()))
	require.ErrorIs(t, first.Lease().Err(), lease.ErrReleased)
}

// The elector renews the lease; the client does not.
func TestUpdateRenews(t *testing.T) {
	t.Parallel()
	lock := elected(t, dial(t), "renewal", "leader")
	before := lock.Lease().Deadline()
	testserver.Eventually(t, "the lease is renewed", func() bool {
		return lock.Update(testserver.Context(t), record("leader")) == nil && lock.Lease().Deadline().After(before)
	})
}

// A leader that lost its lease does not lead again, even if the lock is free: its work may have begun
// before the term of another one.
func TestALostTermStaysLost(t *testing.T) {
	t.Parallel()
	locks := dial(t)
	lock := elected(t, locks, "terms", "leader")
	breakLease(t, locks, lock)
	ctx, term := testserver.Context(t), lock.Lease()
	testserver.Eventually(t, "the loss is noticed", func() bool {
		_ = lock.Update(ctx, record("leader"))
		return term.Err() != nil
	})
	_, _, err := lock.Get(ctx)
	require.ErrorIs(t, err, lease.ErrLost)
	require.ErrorIs(t, lock.Create(ctx, record("leader")), lease.ErrLost)
	require.ErrorContains(t, lock.Update(ctx, record("leader")), "make a new one")
	status, err := locks.Inspect(ctx, "terms")
	require.NoError(t, err)
	require.Empty(t, status.Holders)
}

// A former process with the same identity, as after a restart, is another candidate.
func TestSameIdentity(t *testing.T) {
	t.Parallel()
	locks, ctx := dial(t), testserver.Context(t)
	former := elected(t, locks, "identity", "pod-0")
	lock := candidate(t, locks, "identity", "pod-0")
	found, _, err := lock.Get(ctx)
	require.NoError(t, err)
	require.NotEqual(t, "pod-0", found.HolderIdentity)
	require.ErrorIs(t, lock.Update(ctx, record("pod-0")), lease.ErrHeld)
	require.NoError(t, lock.Update(ctx, record(""))) // nothing to release
	require.NoError(t, former.Update(ctx, record("")))
	_, _, err = lock.Get(ctx)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestInvalidLocks(t *testing.T) {
	for _, name := range []fencing.Resource{"", "a/b", "-a", "a b", "a$"} {
		_, err := kubelock.New(nil, name, "x")
		require.ErrorIs(t, err, fencing.ErrInvalidResource, name)
		require.ErrorContains(t, err, "letters, digits")
	}
	_, err := kubelock.New(nil, "widgets", "")
	require.ErrorContains(t, err, "identity is empty")
}
