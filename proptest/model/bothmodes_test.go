package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
)

const step fencing.Token = 1 << 32

// TestLogCheckerBothModes has one violation of each property of both modes, and
// histories without one.
func TestLogCheckerBothModes(t *testing.T) {
	correctness := model.Route{Mode: engine.Correctness, Ready: true}
	moving := model.Route{Mode: engine.Correctness, Moving: true, Ready: true}
	efficiency := model.Route{Mode: engine.Efficiency, Ready: true}
	stopped := model.Route{Mode: engine.Efficiency}
	for _, c := range []struct {
		name     string
		run      func(way func(model.Route, fencing.Token, fencing.Token) error, grant func(fencing.Token) error) error
		violated model.Property
	}{
		{"there and back", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, grant(3))
			require.NoError(t, way(moving, 3, step+3))
			require.NoError(t, way(efficiency, 3, step+3))
			require.NoError(t, way(efficiency, 3, 2*step+3))
			require.NoError(t, way(correctness, 3, 2*step+3))
			return grant(2*step + 4)
		}, ""},
		{"token of the other mode reused", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, way(efficiency, 0, step))
			require.NoError(t, way(correctness, 0, step))
			return grant(step)
		}, model.Modes},
		{"Redis starts too low", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, grant(3))
			return way(efficiency, 2, step)
		}, model.Modes},
		{"Redis starts too low, but is not ready", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, grant(3))
			return way(stopped, 2, step)
		}, ""},
		{"Redis starts too low and becomes ready", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, grant(3))
			require.NoError(t, way(stopped, 2, step))
			return way(efficiency, 2, step)
		}, model.Modes},
		{"the ceiling falls", func(way func(model.Route, fencing.Token, fencing.Token) error,
			_ func(fencing.Token) error) error {
			require.NoError(t, way(correctness, 0, 2))
			return way(correctness, 0, 1)
		}, model.Modes},
		{"granted while it migrates", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, way(moving, 0, step))
			return grant(step + 1)
		}, model.Closed},
		{"granted in the other mode", func(way func(model.Route, fencing.Token, fencing.Token) error,
			grant func(fencing.Token) error) error {
			require.NoError(t, way(efficiency, 0, step))
			return grant(step + 1)
		}, model.Closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			checker := model.NewLogChecker()
			nonce := engine.Nonce(0)
			way := func(way model.Route, floor, ceiling fencing.Token) error {
				return checker.Routed(map[fencing.Resource]model.Route{"a": way}, floor, ceiling)
			}
			grant := func(token fencing.Token) error { // and release
				nonce++
				checker.Requested(model.Session{ID: ann}, want(nonce, engine.Exclusive, "a"))
				if err := checker.Observe(event(model.WasGranted, ann, nonce, token, "a")); err != nil {
					return err
				}
				return checker.Observe(event(model.WasReleased, ann, nonce, token, "a"))
			}
			err := c.run(way, grant)
			requireViolation(t, c.violated, err)
		})
	}
	checker := model.NewLogChecker()
	for _, id := range []engine.SessionID{ann, bob} {
		checker.Requested(model.Session{ID: id}, want(1, engine.Exclusive, "a"))
	}
	require.NoError(t, checker.Observe(event(model.WasGranted, ann, 1, 1, "a")))
	require.NoError(t, checker.Observe(event(model.WasQueued, bob, 1, 0, "a")))
	require.NoError(t, checker.Routed(map[fencing.Resource]model.Route{"a": moving}, 1, step+1))
	requireViolation(t, model.Closed, checker.AllEnded()) // an attempt waits for a migrating lock
	requireViolation(t, model.Closed, checker.Routed(map[fencing.Resource]model.Route{"a": efficiency}, 1, step+1))
	require.NoError(t, checker.Routed(map[fencing.Resource]model.Route{"a": correctness}, 1, step+1))
	require.NoError(t, checker.Observe(event(model.WasReleased, ann, 1, 1, "a")))
	require.NoError(t, checker.CheckWaiters(), "it may be granted later")
	require.NoError(t, checker.AllEnded())
	requireViolation(t, model.WakeUp, checker.CheckWaiters())
}

// TestModelMigrations is a run that a reader can follow with docs/REDLOCK.md at hand.
func TestModelMigrations(t *testing.T) {
	m := model.New()
	does := func(code model.Code, kinds ...model.EventKind) func(model.Outcome) model.Outcome {
		return expect(t, m, code, kinds...)
	}
	incarnation := does(model.Done)(m.OpenSession(ann, time.Second)).Incarnation
	me := model.Session{ID: ann, Incarnation: incarnation}
	efficiency, correctness := engine.Policy{Prefix: "a", Mode: engine.Efficiency},
		engine.Policy{Prefix: "a", Mode: engine.Correctness}
	fleet := engine.Fleet{Namespace: "n", Addresses: []string{"r:1"}, MaxTTL: time.Minute}

	// To efficiency: waiters are cancelled, the holder releases, Redis continues above it.
	does(model.Granted, model.WasGranted)(m.Acquire(me, want(1, engine.Exclusive, "a")))
	does(model.Queued, model.WasQueued)(m.Acquire(me, want(2, engine.Exclusive, "a")))
	does(model.Done)(m.SetPolicy(efficiency, 0, false))
	does(model.Done, model.WasCancelled)(m.EndRequests(1))
	does(model.Migrating)(m.Acquire(me, want(2, engine.Exclusive, "a")))
	does(model.Migrating)(m.SetPolicy(correctness, 0, false))
	does(model.Busy)(m.FinishMigration("a", 1, 0))
	does(model.Done, model.WasReleased)(m.Release(me, 1))
	does(model.Outdated)(m.FinishMigration("a", 2, 0))
	does(model.Done)(m.FinishMigration("a", 1, 0))
	does(model.WrongMode)(m.Acquire(me, want(2, engine.Exclusive, "a")))
	require.Equal(t, model.Redis{Floor: 1, Ceiling: 1 + step, Fresh: true}, m.Redis())

	// A fleet, which is fresh; then a life of its node.
	does(model.Done)(m.SetFleet(fleet, 2, false, false))
	does(model.NotReady)(m.NameLife("r:1", "x", 0))
	does(model.Done)(m.Reconcile(0, 0, 0, nil, nil))
	does(model.Done)(m.NameLife("r:1", "x", 0))
	require.Equal(t, []model.Life{{Name: "x", Pending: true, Floor: 1, Version: 5}}, m.Redis().Lives)
	require.False(t, m.Ready())
	does(model.Done)(m.FinishReconcile(5))
	require.True(t, m.Ready())

	// Back to correctness: tokens continue above the ceiling.
	does(model.Done)(m.SetPolicy(correctness, 0, false))
	does(model.Done)(m.FinishMigration("a", 7, 0))
	require.Equal(t, 2+step, does(model.Granted, model.WasGranted)(m.Acquire(me, want(3, engine.Exclusive, "a"))).Token)

	// A restored log must be reconciled with the nodes first.
	does(model.Done)(m.MarkRestored(0, 0, engine.Fleet{}, false, false))
	does(model.NotReady)(m.NameLife("r:1", "x", 0))
	does(model.Done)(m.Reconcile(0, 9, 5*step, nil, nil))
	require.Equal(t, 9*step, m.LastToken)
	require.Equal(t, 7*step, m.Redis().Floor)
}
