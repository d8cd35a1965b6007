package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// readyOn returns a machine whose fleet serves, and that has granted some tokens.
func readyOn(t *testing.T, fleet engine.Fleet, granted fencing.Token) *Machine {
	t.Helper()
	return readyWith(t, fleet, "a.j", granted)
}

func readyWith(t *testing.T, fleet engine.Fleet, life string, granted fencing.Token) *Machine {
	t.Helper()
	m := set(fleet, 0)
	for _, c := range []Command{&Reconcile{}, &NameLife{Member: fleet.Addresses[0], Life: life},
		&FinishReconcile{Version: 3}} {
		result, _ := m.Apply(c)
		require.Equal(t, Done, result.Code, "%T", c)
	}
	m.Apply(&RaiseFloor{By: granted})
	return m
}

// A backup is restored to a new cluster whose configuration names a fleet. The log of the new cluster does not know
// what the former one has done since.
func TestStartOverInANewCluster(t *testing.T) {
	const now = 1_700_000_000
	used := fleetOf("a:1")
	other := fleetOf("b:1")
	fresh := set(used, 0)
	ready := readyOn(t, other, 1)
	for name, c := range map[string]struct {
		backup, present   *Machine
		restored, skipped bool
	}{
		"the fleet of the backup, which is down":          {readyOn(t, used, 7), fresh, true, false},
		"the fleet of the backup, which was empty":        {readyOn(t, used, 7), readyOn(t, used, 1), true, true},
		"the fleet of the backup, empty, in an equal log": {readyOn(t, used, 7), readyWith(t, used, "b.j", 7), true, true},
		"the fleet of the backup, whose nodes have voted": {readyOn(t, used, 7), votedOn(t, used), true, false},
		"the fleet of a backup that waits for it":         {restoredOn(t, used), fresh, true, true},
		"the fleet of a backup, which was not used yet":   {set(used, 7), fresh, true, true},
		"the same cluster, with a fleet that is not used": {set(used, 7), set(used, 8), false, false},
		"the same cluster, back on a former fleet":        {readyOn(t, used, 7), changed(t, used, other, used), true, false},
		"another fleet, which serves already":             {readyOn(t, used, 7), ready, true, true},
		"another fleet, which is down":                    {readyOn(t, other, 7), fresh, false, true},
		"a fleet that was set after the backup":           {readyOn(t, used, 7), changed(t, used, other), false, false},
		"a fleet, and a backup from before the first one": {set(engine.Fleet{}, 7), fresh, false, true},
		"no fleet, and a backup that has one":             {readyOn(t, used, 7), New(), true, false},
		"the same cluster and fleet":                      {readyOn(t, used, 7), readyOn(t, used, 7), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			known := max(c.backup.LastToken(), c.backup.Ceiling(), c.present.LastToken(), c.present.Ceiling())
			result := c.backup.StartOver(c.present.Present(), now)
			require.Equal(t, Done, result.Code)
			e := c.backup.Efficiency()
			require.Equal(t, c.restored, e.Restored)
			require.GreaterOrEqual(t, result.Token, known+fencing.FloorStep)
			if c.skipped {
				require.Equal(t, known+forgottenFleet, e.Ceiling)
				require.Greater(t, result.Token, e.Ceiling)
			} else {
				require.LessOrEqual(t, e.Ceiling, known)
			}
		})
	}
}

// votedOn returns a machine whose fleet serves, with nodes that had data.
func votedOn(t *testing.T, fleet engine.Fleet) *Machine {
	t.Helper()
	m := set(fleet, 0)
	m.Apply(&Reconcile{Version: 1, Ceiling: 1, Lives: []string{"a.j"}})
	result, _ := m.Apply(&FinishReconcile{Version: m.Efficiency().Version})
	require.Equal(t, Done, result.Code)
	return m
}

// A backup from the middle of a change of the fleet does not bring back the change: it may have been cancelled since.
func TestStartOverKeepsTheFleet(t *testing.T) {
	from, to := fleetOf("a:1"), fleetOf("b:1")
	for name, present := range map[string]*Machine{"in the same cluster": readyOn(t, from, 8),
		"in a new cluster": readyWith(t, from, "b.j", 8)} {
		m := readyOn(t, from, 7)
		result, _ := m.Apply(&SetFleet{Fleet: to})
		require.Equal(t, Done, result.Code)
		m.StartOver(present.Present(), 0)
		require.Equal(t, from, m.Efficiency().Fleet, name)
		require.Zero(t, m.Efficiency().NextVersion, name)
	}
}

// Correctness mode may have granted more than efficiency mode when a restore brings back a fleet that is not used yet,
// and makes locks efficiency locks again.
func TestStartOverWithAnUnusedFleet(t *testing.T) {
	m, p := readyOn(t, fleetOf("a:1"), 7), changed(t, fleetOf("a:1"), fleetOf("b:1"))
	p.Apply(&RaiseFloor{By: 5 * fencing.FloorStep})
	granted := p.LastToken()
	m.StartOver(p.Present(), 0)
	result, _ := m.Apply(&Reconcile{})
	require.Equal(t, Done, result.Code)
	require.GreaterOrEqual(t, m.Efficiency().Floor, granted)
}

// A member of a new cluster must not send calls to a member of the former one that has the ID of its leader.
func TestStartOverKeepsTheMembers(t *testing.T) {
	m, p := New(), New()
	m.Apply(&SetMemberAPI{ID: "n1", Address: "former:1"})
	m.Apply(&SetMemberAPI{ID: "n2", Address: "former:2"})
	p.Apply(&SetMemberAPI{ID: "n1", Address: "present:1"})
	m.StartOver(p.Present(), 0)
	require.Equal(t, map[string]string{"n1": "present:1"}, m.MemberAPIs())
}

// restoredOn returns a machine that was restored with a fleet that has not reported.
func restoredOn(t *testing.T, fleet engine.Fleet) *Machine {
	t.Helper()
	m := readyOn(t, fleet, 7)
	m.Apply(&MarkRestored{})
	return m
}

// changed returns a machine that has changed its fleet. The last one is not used yet.
func changed(t *testing.T, from engine.Fleet, to ...engine.Fleet) *Machine {
	t.Helper()
	m := readyOn(t, from, 7)
	for _, fleet := range to {
		result, _ := m.Apply(&SetFleet{Fleet: fleet})
		m.Apply(&FinishFleet{Version: result.Version})
		require.Equal(t, fleet, m.Topology().Fleet)
	}
	return m
}

// set returns a machine with a fleet that is not used yet, and that has granted some tokens.
func set(fleet engine.Fleet, granted fencing.Token) *Machine {
	m := New()
	m.Apply(&SetFleet{Fleet: fleet})
	m.Apply(&RaiseFloor{By: granted})
	return m
}
