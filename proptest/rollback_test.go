package proptest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/raftstore/machine"
)

// watched is a machine that a witness watches. It may be rolled back.
type watched struct {
	*script
	witness *model.Witness
}

// apply runs a batch, and shows everything to the witness.
func (w *watched) apply(t *rapid.T, batch ...machine.Command) {
	for _, c := range batch {
		if a, ok := c.(*machine.Acquire); ok && w.machine.SessionInfo(a.Session).Incarnation == a.Incarnation {
			w.witness.Asked(a.Session, a.Request)
		}
		result, events := w.machine.Apply(c)
		for _, e := range events {
			content(t, c, w.witness.See(model.Event{What: model.Happening(e.Type.String()), Resources: e.Resources, Session: e.Session,
				Nonce: e.Nonce, Token: e.Token, Slot: e.Slot}))
		}
		content(t, c, tellWitness(w.witness, w.machine, c, result))
	}
}

// TestARestoreForgetsNoToken saves a snapshot in the middle of a random run and
// restores it at the end, as a cluster does that lives: the present state is known.
// Then the log is reconciled with what the Redis nodes know. In the run that
// follows no range overlaps one that was assigned before the restore, no lock is
// granted a token at or below one that either mode may have granted, and no
// version comes again.
func TestARestoreForgetsNoToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tastes := []taste{tastes[0], tastes[len(tastes)-3], tastes[len(tastes)-2]}
		w := &watched{script: newScript(t, newPair(newCases()), pick(t, tastes, "taste")), witness: model.NewWitness()}
		w.apply(t, w.begin(t)...)
		run := func(batches int) {
			for range 1 + roll(t, batches, "batches") {
				w.apply(t, w.batch(t)...)
			}
		}
		run(20)
		saved := w.machine.Snapshot()
		run(20)

		present := w.machine
		before := present.Efficiency()
		w.apply(t, &machine.EndSessions{}) // clients are told
		for _, d := range present.Delays() {
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
		if raised.Code == machine.Exhausted { // such a snapshot is not restored
			return
		}
		w.machine = m
		w.witness.Raised(raised.Token)
		w.delays = nil
		for _, d := range m.Delays() { // the witness saw their end, if not their beginning
			m.Apply(&machine.EndDelay{Resource: d.Resources[0], Delay: d.DelayID, Generation: m.Generation()})
		}

		require.Greater(t, m.Version(), before.Version)
		topology := m.Topology()
		require.False(t, topology.Ready)
		request := engine.Request{Nonce: 1, Resources: names[:1]}
		if mode, err := topology.Route(&request); mode == engine.Efficiency {
			require.Error(t, err, "no efficiency lock is granted before the log is reconciled")
		}
		content(t, nil, w.witness.Routed(waysOf(m), 0, m.Ceiling()))
		if coin.Draw(t, "reconcile") {
			w.apply(t, &machine.Reconcile{Version: before.Version, Ceiling: before.Ceiling})
			w.apply(t, &machine.FinishReconcile{Version: m.Version()})
		}
		run(20)
	})
}
