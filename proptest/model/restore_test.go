package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/raftstore/machine"
)

// checked is a machine whose events a log checker observes. It may be restored.
type checked struct {
	*generator
	checker *model.LogChecker
}

// apply applies a batch and checks its events.
func (w *checked) apply(t *rapid.T, batch ...machine.Command) {
	for _, c := range batch {
		if a, ok := c.(*machine.Acquire); ok && w.machine.SessionInfo(a.Session).Incarnation == a.Incarnation {
			w.checker.Requested(model.Session{ID: a.Session, Incarnation: a.Incarnation}, a.Request)
		}
		result, events := w.machine.Apply(c)
		for _, e := range events {
			requireValid(t, c, w.checker.Observe(model.Event{Kind: model.EventKind(e.Type.String()), Resources: e.Resources,
				Session: e.Session,
				Nonce:   e.Nonce, Token: e.Token, Slot: e.Slot, Incarnation: e.Incarnation}))
		}
		same := func(id engine.SessionID, incarnation uint64) model.Session {
			return model.Session{ID: id, Incarnation: incarnation}
		}
		requireValid(t, c, notifyChecker(w.checker, w.machine, same, c, result))
	}
}

// TestRestoreReusesNoToken saves a snapshot in the middle of a random run and restores it
// at the end, as a running cluster does, which knows the replaced state. Then the log is
// reconciled with the Redis nodes. In the rest of the run no range overlaps an earlier
// one, no lock is granted a token at or below one that either mode may have granted, and
// no version is reused.
func TestRestoreReusesNoToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		profiles := []profile{profiles[0], profiles[len(profiles)-3], profiles[len(profiles)-2]}
		w := &checked{generator: newGenerator(t, newComparison(newCases()), pick(t, profiles, "profile")),
			checker: model.NewLogChecker()}
		w.apply(t, w.begin(t)...)
		run := func(batches int) {
			for range 1 + draw(t, batches, "batches") {
				w.apply(t, w.batch(t)...)
			}
		}
		run(20)
		saved := w.machine.Snapshot()
		run(20)

		present := w.machine
		before := present.Efficiency()
		w.apply(t, &machine.EndSessions{}) // ends the sessions of the replaced state
		for _, d := range delaysOf(present) {
			w.apply(t, &machine.EndDelay{Resource: d.Resources[0], Delay: d.DelayID, Generation: present.Generation()})
		}
		m, err := machine.Restore(saved)
		require.NoError(t, err)
		m.Apply(&machine.EndSessions{Above: present.Order()})
		m.Apply(&machine.MarkRestored{Version: before.Version, Ceiling: before.Ceiling})
		by := fencing.FloorStep
		if have := max(m.LastToken(), m.Ceiling()); present.LastToken() > have {
			by += present.LastToken() - have
		}
		raised, _ := m.Apply(&machine.RaiseFloor{By: by})
		if raised.Code == machine.Exhausted { // production does not restore such a snapshot
			return
		}
		w.machine = m
		w.checker.RaiseFloor(raised.Token)
		w.delays = nil
		for _, d := range delaysOf(m) { // the checker may have missed their start
			m.Apply(&machine.EndDelay{Resource: d.Resources[0], Delay: d.DelayID, Generation: m.Generation()})
		}

		require.Greater(t, m.Version(), before.Version)
		topology := m.Topology()
		require.False(t, topology.Ready)
		request := engine.Request{Nonce: 1, Resources: names[:1]}
		if mode, err := topology.Route(&request); mode == engine.Efficiency {
			require.Error(t, err, "no efficiency lock is granted before the log is reconciled")
		}
		requireValid(t, nil, w.checker.Routed(routesOf(m), 0, m.Ceiling()))
		if !m.Efficiency().Fleet.IsZero() && coin.Draw(t, "reconcile") {
			w.apply(t, &machine.Reconcile{Version: before.Version, Ceiling: before.Ceiling})
			w.apply(t, &machine.FinishReconcile{Version: m.Version()})
		}
		run(20)
	})
}
