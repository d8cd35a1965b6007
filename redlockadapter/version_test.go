package redlockadapter_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// service is a service with a topology.
type service struct {
	topology atomic.Pointer[engine.Topology]
}

// follow returns the Backend of a process that uses the topology of s.
func (s *service) follow(t *testing.T, f *virtualFleet) *redlockadapter.Backend {
	t.Helper()
	one := *f
	one.config.Topology = func() engine.Topology { return *s.topology.Load() }
	return one.backend(t)
}

func (s *service) set(f *virtualFleet, version uint64, policies ...engine.Policy) {
	all, err := engine.NewPolicies(append(policies, engine.Policy{Prefix: "e/", Mode: engine.Efficiency})...)
	if err != nil {
		panic(err) // a mistake in the test
	}
	t := &engine.Topology{Version: version, Policies: all, Ready: true, Fleet: engine.Fleet{Namespace: "leased",
		MaxTTL: virtualTTL}}
	for _, n := range f.nodes {
		t.Fleet.Addresses = append(t.Fleet.Addresses, n.name)
		t.Lives = append(t.Lives, recovery.LifeName(n.server(), "join"))
	}
	s.topology.Store(t)
}

// holdingInService returns a backend that holds a lock under version 2 of the topology of a service with three nodes.
func holdingInService(t *testing.T, lock fencing.Resource) (
	*virtualFleet, *service, *redlockadapter.Backend, Held,
) {
	t.Helper()
	f, s := newVirtualFleet(t, 3).initService(t), new(service)
	s.set(f, 2)
	b := s.follow(t, f)
	held, err := b.Acquire(t.Context(), engine.NewSessionID(), virtualTTL, request(1, lock))
	require.NoError(t, err)
	return f, s, b, held
}

// A node refuses calls with an older version than it has seen, and adopts a newer one.
func TestNodesRefuseOlderVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).initService(t)
		var fresh, stale service
		fresh.set(f, 5)
		stale.set(f, 4)
		newer, older, alone := fresh.follow(t, f), stale.follow(t, f), f.backend(t)
		ctx := t.Context()
		held, err := older.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/1"))
		require.NoError(t, err)
		require.EqualValues(t, 4, newer.NodeStatuses(ctx)[0].Report.Live.Version, "a larger version is adopted")
		_, err = newer.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/2"))
		require.NoError(t, err)

		_, err = older.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(2, "e/3"))
		require.ErrorIs(t, err, engine.ErrVersion)
		require.ErrorIs(t, err, engine.ErrUnavailable, "nothing was changed")
		err = older.Renew(ctx, []Held{held})[0]
		require.ErrorIs(t, err, engine.ErrVersion)
		require.NotErrorIs(t, err, engine.ErrLost, "it may be renewed under the newer version")
		require.NoError(t, newer.Renew(ctx, []Held{held})[0])
		_, err = alone.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/4"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.ErrorContains(t, err, "to a service")

		stale.set(f, 5)
		_, err = older.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(3, "e/3"))
		require.NoError(t, err, "the topology was reloaded")
	})
}

// A process that has missed a version does not say that a lock is free, or that a lease has ended: under the newer
// version the lock may be in correctness mode.
func TestNodesRefuseReadsUnderOlderVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, held := holdingInService(t, "e/1")
		ctx := t.Context()
		reads := map[string]func() error{
			"inspect": func() error { _, err := b.Inspect(ctx, "e/2"); return err },
			"list":    func() error { _, err := b.List(ctx, "e/2", "", 10); return err },
			"find":    func() error { _, err := b.Find(ctx, "e/1", held.Token); return err },
			"break":   func() error { return b.Break(ctx, "e/1", held.Token) },
			"ended":   func() error { _, err := b.Ended(ctx, "e/1", held.Session, held.Nonce); return err },
			"watch":   func() error { return b.Watch(ctx, "e/2", func(engine.Status) {}) },
		}
		goal := recovery.Goal{Version: 3, Fleet: s.topology.Load().Fleet.Fingerprint(), Floor: 1000, Ceiling: 5000}
		require.NoError(t, b.Advance(ctx, 0, f.nodes[0].server(), goal))
		for name, read := range reads {
			require.ErrorIs(t, read(), engine.ErrVersion, name)
		}
		s.set(f, 3)
		_, err := b.Find(ctx, "e/1", held.Token)
		require.NoError(t, err, "the topology was reloaded")
	})
}

// After a quorum was advanced, no attempt with an older version is granted or renewed.
func TestAdvanceEndsOlderVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, held := holdingInService(t, "e/1")
		ctx := t.Context()
		goal := recovery.Goal{Version: 3, Fleet: s.topology.Load().Fleet.Fingerprint(), Floor: 1000, Ceiling: 5000}
		require.NoError(t, b.Advance(ctx, 0, f.nodes[0].server(), goal))
		require.NoError(t, b.Renew(ctx, []Held{held})[0], "one node is not a quorum")
		require.NoError(t, b.Advance(ctx, 1, f.nodes[1].server(), goal))
		require.NoError(t, b.Advance(ctx, 1, f.nodes[1].server(), recovery.Goal{Version: 1, Fleet: goal.Fleet}),
			"nothing is lowered")
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrVersion)
		_, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/2"))
		require.ErrorIs(t, err, engine.ErrVersion)
		require.Error(t, b.Advance(ctx, 2, f.nodes[2].server(), recovery.Goal{Version: 3, Fleet: "another"}))

		s.set(f, 3)
		grant, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/2"))
		require.NoError(t, err)
		require.Greater(t, grant.Token, goal.Floor)
	})
}

// A migrating lock is neither granted nor renewed. Version and mode come from one
// topology.
func TestMigratingLockIsNotGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, held := holdingInService(t, "e/migrating/1")
		ctx := t.Context()
		lost := make(chan error, 1)
		session, err := b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: virtualTTL, Clock: f.clock,
			Lost: func(_ engine.Nonce, err error) { lost <- err }})
		require.NoError(t, err)
		grant, err := session.Acquire(ctx, request(1, "e/migrating/2"))
		require.NoError(t, err)

		s.set(f, 3, engine.Policy{Prefix: "e/migrating/", Mode: engine.Efficiency, Next: engine.Correctness})
		_, err = b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/migrating/3"))
		var moving *engine.MigratingError
		require.ErrorAs(t, err, &moving)
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
		time.Sleep(time.Second)
		_, err = b.Find(ctx, "e/migrating/1", held.Token)
		require.NoError(t, err, "a member may have extended the lease")
		_, err = session.Renew(ctx, heldOf(request(1, "e/migrating/2"), grant, virtualTTL))
		require.NoError(t, err)
		require.ErrorIs(t, lostError(t, lost), engine.ErrTaken)
		_, err = b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/1", "e/migrating/1"))
		require.ErrorAs(t, err, &moving, "a set with one such lock")

		s.set(f, 4, engine.Policy{Prefix: "e/migrating/", Mode: engine.Correctness})
		_, err = b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(2, "e/migrating/1"))
		require.ErrorIs(t, err, engine.ErrModeMismatch)
		_, err = b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(2, "e/1"))
		require.NoError(t, err, "other locks are not affected")
	})
}

// The lease of a set is lost when one of its locks has another mode, also for a process that has seen nothing of the
// migration. The other lock is free at once.
func TestSetIsLostWithOneOfItsLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, _ := holdingInService(t, "e/1")
		ctx := t.Context()
		held, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/moved", "e/stays"))
		require.NoError(t, err)
		s.set(f, 4, engine.Policy{Prefix: "e/moved", Mode: engine.Correctness})
		require.ErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrTaken)
		_, err = b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(2, "e/stays"))
		require.NoError(t, err)
	})
}

// A waiting acquire fails when the migration of its lock begins.
func TestMigrationFailsWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).initService(t)
		var s service
		s.set(f, 2)
		b, ctx := s.follow(t, f), t.Context()
		_, err := s.follow(t, f).Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/1"))
		require.NoError(t, err)
		failed := make(chan error)
		go func() {
			r := request(1, "e/1")
			r.Wait = true
			_, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, r)
			failed <- err
		}()
		advance(time.Second)
		s.set(f, 3, engine.Policy{Prefix: "e/1", Mode: engine.Efficiency, Next: engine.Correctness})
		var moving *engine.MigratingError
		require.ErrorAs(t, <-failed, &moving)
	})
}

// A process gets no lease if its fleet is not that of the topology, or if the service is
// not ready.
func TestFleetMustMatchTheTopology(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, s, b, held := holdingInService(t, "e/1")
		ctx := t.Context()
		s.set(&virtualFleet{nodes: f.nodes[:1]}, 3)
		_, err := b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/2"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.ErrorContains(t, err, "fleet has changed")
		require.NotErrorIs(t, b.Renew(ctx, []Held{held})[0], engine.ErrLost)
		require.Error(t, b.Renew(ctx, []Held{held})[0])

		s.set(f, 4)
		s.topology.Load().Ready = false
		_, err = b.Acquire(ctx, engine.NewSessionID(), virtualTTL, request(1, "e/2"))
		require.ErrorIs(t, err, engine.ErrUnavailable)
	})
}
