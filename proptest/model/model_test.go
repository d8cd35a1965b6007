package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
)

var ann, bob, eve = engine.SessionID{1}, engine.SessionID{2}, engine.SessionID{3}

func want(nonce engine.Nonce, kind engine.Kind, names ...fencing.Resource) engine.Request {
	return engine.Request{Nonce: nonce, Kind: kind, Resources: names, Wait: true}
}

// expect returns a function that checks the result code and the kinds of events of a
// command.
func expect(t *testing.T, m *model.Model, code model.Code, kinds ...model.EventKind) func(model.Outcome) model.Outcome {
	return func(o model.Outcome) model.Outcome {
		t.Helper()
		require.Equal(t, code, o.Code)
		var have []model.EventKind
		for _, e := range m.Events() {
			have = append(have, e.Kind)
		}
		require.Equal(t, kinds, have)
		return o
	}
}

// TestModel is a run that a reader can follow with docs/RAFT.md at hand.
func TestModel(t *testing.T) {
	m := model.New()
	ann, bob, eve := model.Session{ID: ann, Incarnation: 1}, model.Session{ID: bob, Incarnation: 2},
		model.Session{ID: eve, Incarnation: 3}
	says := func(code model.Code, kinds ...model.EventKind) func(model.Outcome) model.Outcome {
		return expect(t, m, code, kinds...)
	}
	says(model.Done)(m.Lead())
	for _, s := range []model.Session{ann, bob, eve} {
		require.Equal(t, s.Incarnation, says(model.Done)(m.OpenSession(s.ID, time.Second)).Incarnation)
	}
	says(model.Done)(m.SetPolicy(engine.Policy{Prefix: "slow/", Mode: engine.Correctness, LockDelay: time.Minute}, 0,
		false))

	// Two readers, a writer that waits, a reader that waits behind it.
	o := says(model.Granted, model.WasGranted)(m.Acquire(ann, want(1, engine.Shared, "a")))
	require.Equal(t, fencing.Token(1), o.Token)
	says(model.Granted, model.WasGranted)(m.Acquire(bob, want(1, engine.Shared, "a", "b")))
	says(model.Queued, model.WasQueued)(m.Acquire(eve, want(1, engine.Exclusive, "a")))
	says(model.Queued, model.WasQueued)(m.Acquire(ann, want(2, engine.Shared, "a")))
	says(model.Done, model.WasReleased)(m.Release(ann, 1))
	says(model.Done, model.WasReleased, model.WasGranted)(m.Release(bob, 1))
	says(model.Ended)(m.Acquire(bob, want(1, engine.Shared, "a", "b")))
	says(model.Outdated)(m.Expire(eve, 0))
	says(model.Done)(m.EndRequests(1))
	says(model.Done)(m.Expire(eve, 1)) // its lease ends later
	says(model.Done, model.WasExpired, model.WasGranted)(m.EndRequests(1))
	says(model.NoSession)(m.Expire(eve, 1))

	// Requests of one incarnation have no effect on the next.
	require.Equal(t, uint64(4), says(model.Done)(m.OpenSession(eve.ID, time.Second)).Incarnation)
	says(model.NoSession)(m.Acquire(eve, want(2, engine.Exclusive, "e")))
	says(model.NoSession)(m.CloseSession(eve))

	// A lock-delay blocks waiters until it ends.
	says(model.Granted, model.WasGranted)(m.Acquire(ann, want(3, engine.Exclusive, "slow/x")))
	says(model.Queued, model.WasQueued)(m.Acquire(bob, want(2, engine.Exclusive, "slow/x")))
	says(model.NotHeld)(m.Break("slow/x", 4))
	says(model.Done, model.WasBroken, model.WasDelayed)(m.Break("slow/x", 5))
	says(model.Outdated)(m.EndDelay("slow/x", 2, 1))
	says(model.Done, model.WasOpened, model.WasGranted)(m.EndDelay("slow/x", 1, 1))
	require.Equal(t, fencing.Token(6), m.LastToken)

	// Permits take the lowest free slot.
	permit := func(nonce engine.Nonce, n int) engine.Request {
		return engine.Request{Nonce: nonce, Kind: engine.Permit, Permits: n, Resources: []fencing.Resource{"p"}}
	}
	require.Equal(t, 1, says(model.Granted, model.WasGranted)(m.Acquire(ann, permit(4, 2))).Slot)
	require.Equal(t, 2, says(model.OtherPermits)(m.Acquire(ann, permit(8, 3))).Permits)
	says(model.Ended)(m.Acquire(ann, permit(8, 2)))
	require.Equal(t, 2, says(model.Granted, model.WasGranted)(m.Acquire(ann, permit(5, 2))).Slot)
	says(model.Held)(m.Acquire(ann, permit(6, 2)))
	says(model.Done, model.WasReleased)(m.Release(ann, 4))
	require.Equal(t, 1, says(model.Granted, model.WasGranted)(m.Acquire(ann, permit(7, 2))).Slot)

	says(model.Exhausted)(m.RaiseFloor(fencing.MaxToken))
	says(model.Done)(m.RaiseFloor(fencing.MaxToken - m.LastToken))
	says(model.Exhausted)(m.Acquire(bob, want(9, engine.Exclusive, "z")))
	says(model.Done, model.WasExpired, model.WasExpired, model.WasExpired, model.WasExpired,
		model.WasDelayed)(m.EndSessions())
	says(model.NoSession)(m.Release(bob, 9))
}
