package machine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A life gets one range, whoever asks and how often, and every range is above all earlier
// ones.
func TestRanges(t *testing.T) {
	run(t, []scenario{
		{"each range is above all earlier ones", append(becomesReady(), []step{
			{assign("r1:1", "a"), "done (0, 1] v5", ""},
			{assign("r2:1", "b"), "done (1, 2] v6", ""},
			{assign("r1:1", "c"), "done (2, 3] v7", ""},
			{&RaiseCeiling{To: 2 << 32}, "done v7", ""}, // never lowered
			{assign("r1:1", "d"), "done (3, 4] v8", ""},
			{&RaiseCeiling{To: 7 << 32}, "done v8", ""},
			{assign("r3:1", "e"), "done (7, 8] v9", ""},
			{mode("a", engine.Efficiency, 0), "done v10", ""},
			{assign("r3:1", "f"), "done (9, 10] v11", ""},
			{assign("r4:1", "g"), "outdated v11", ""},
		}...)},
		{"a life gets one range", append(becomesReady(), []step{
			{&AssignRange{Member: "r1:1", Life: "a", Version: 4}, "done (0, 1] v5", ""},
			{&AssignRange{Member: "r1:1", Life: "a", Version: 4}, "done (0, 1] v5", ""}, // repeated
			{assign("r2:1", "a"), "outdated v5", ""},                                    // one server has one vote
			{mode("x", engine.Efficiency, 0), "done v6", ""},
			{assign("r1:1", "a"), "done (0, 1] v6", ""},
			{&AssignRange{Member: "r1:1", Life: "b", Version: 5}, "outdated v6", ""}, // the log has changed
			{&AssignRange{Member: "r1:1", Life: "b", Version: 6}, "done (2, 3] v7", ""},
		}...)},
		{"a range is not given to a life that has voted", append(becomesReady(), []step{
			{assign("r1:1", "a"), "done (0, 1] v5", ""},
			{&FinishRecovery{Member: "r1:1", Life: "b"}, "outdated v5", ""},
			{&FinishRecovery{Member: "r2:1", Life: "a"}, "outdated v5", ""},
			{&FinishRecovery{Member: "r1:1", Life: "a"}, "done v5", ""},
			{&FinishRecovery{Member: "r1:1", Life: "a"}, "done v5", ""},
			{assign("r1:1", "a"), "outdated v5", ""},
			{assign("r1:1", "b"), "done (1, 2] v6", ""},
			{&FinishRecovery{Member: "r1:1", Life: "a"}, "outdated v6", ""},
		}...)},
		{"ranges can be exhausted", append(becomesReady(), []step{
			{&RaiseCeiling{To: fencing.MaxToken - 1<<32}, "done v4", ""},
			{assign("r1:1", "a"), "done (2097150, 2097151] v5", ""},
			{assign("r1:1", "b"), "exhausted v5", ""},
			{&RaiseCeiling{To: fencing.MaxToken}, "done v5", ""},
		}...)},
	})
}

// A recovery names the new life in the place of the old one, under a new version. The
// former set stays open until the leader has closed it.
func TestRecoveryIsAChangeOfTheFleet(t *testing.T) {
	m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2})
	require.Equal(t, []string{"a", "b", "c"}, m.Topology().Lives)
	result, _ := m.Apply(assign("r1:1", "a2"))
	require.Equal(t, Range{Floor: 0, Ceiling: 1 << 32, Version: 4}, *result.Range)
	require.Equal(t, []string{"a2", "b", "c"}, m.Topology().Lives)
	require.Equal(t, uint64(4), m.Topology().Version)
	first := Set{Version: 3, Lives: []string{"a", "b", "c"}}
	require.Equal(t, []Set{first}, m.Efficiency().Open)

	m.Apply(assign("r1:1", "a2"))
	require.Equal(t, []Set{first}, m.Efficiency().Open, "a copy changes nothing")
	m.Apply(mode("x", engine.Efficiency, 0))
	m.Apply(assign("r2:1", "b2"))
	second := Set{Version: 5, Lives: []string{"a2", "b", "c"}} // of all versions from 4
	sameAfterRestore(t, m)
	require.Equal(t, []Set{first, second}, m.Efficiency().Open)
	result, _ = m.Apply(assign("r1:1", "a2"))
	require.Equal(t, uint64(4), result.Range.Version, "the version that first named the life")

	m.Apply(&CloseSets{Version: 3})
	require.Len(t, m.Efficiency().Open, 2)
	m.Apply(&CloseSets{Version: 4})
	require.Equal(t, []Set{second}, m.Efficiency().Open)
	m.Apply(&CloseSets{Version: 4})
	require.Equal(t, []Set{second}, m.Efficiency().Open)
	before := m.Version()
	m.Apply(&CloseSets{Version: 6})
	require.Empty(t, m.Efficiency().Open)
	require.Equal(t, before, m.Version(), "callers do not need to know")
	require.NoError(t, m.check())
}

// Nobody uses a set of lives before efficiency mode is ready.
func TestNoSetIsOpenBeforeTheModeIsReady(t *testing.T) {
	m := played(t, &SetFleet{Fleet: three}, &Reconcile{}, assign("r1:1", "a"), assign("r2:1", "b"))
	require.Empty(t, m.Efficiency().Open)
	require.Equal(t, []string{"a", "b", ""}, m.Topology().Lives)
	require.False(t, m.Topology().Ready)
	m.Apply(&FinishReconcile{Version: m.Version()})
	m.Apply(assign("r3:1", "c"))
	require.Equal(t, []Set{{Version: 5, Lives: []string{"a", "b", ""}}}, m.Efficiency().Open)
}

// Callers may still use versions that a log has forgotten when it was rolled back.
func TestForgottenSetIsOpen(t *testing.T) {
	reconcile := &Reconcile{Lives: []string{"a", "b", ""}, Past: []string{"a", "b", "?"}}
	m := played(t, &SetFleet{Fleet: three}, reconcile)
	require.Empty(t, m.Efficiency().Open, "the log has forgotten nothing")
	m.Apply(&MarkRestored{})
	m.Apply(reconcile)
	e := m.Efficiency()
	require.Equal(t, []Set{{Version: e.ReconcileVersion - 1, Lives: reconcile.Past}}, e.Open)
	sameAfterRestore(t, m)
	m.Apply(assign("r3:1", "c"))
	require.NoError(t, m.check())
	require.Len(t, m.Efficiency().Open, 1)
	m.Apply(&CloseSets{Version: e.ReconcileVersion})
	require.Empty(t, m.Efficiency().Open)
	result, _ := played(t, &SetFleet{Fleet: three}).Apply(&Reconcile{Past: []string{"a"}})
	require.Equal(t, Outdated, result.Code)
}

// What replaces the fleet, or the log, also replaces the lives.
func TestLivesBelongToAFleet(t *testing.T) {
	for name, commands := range map[string][]Command{
		"another fleet":                {&SetFleet{Fleet: fleetOf("r4:1")}, &FinishFleet{Version: 5}},
		"a restore":                    {&MarkRestored{}},
		"a restore, and another fleet": {&MarkRestored{}, &SetFleet{Fleet: fleetOf("r4:1"), Force: true}},
	} {
		t.Run(name, func(t *testing.T) {
			m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2}, assign("r1:1", "a2"))
			for _, c := range commands {
				result, _ := m.Apply(c)
				require.Equal(t, Done, result.Code)
			}
			e := m.Efficiency()
			require.Empty(t, e.Open)
			for _, l := range e.Lives {
				require.Zero(t, l)
			}
			result, _ := m.Apply(&AssignRange{Member: e.Fleet.Addresses[0], Life: "a2"})
			require.Equal(t, NotReady, result.Code, "the log may have forgotten its ceiling")
			m.Apply(&Reconcile{})
			result, _ = m.Apply(&AssignRange{Member: e.Fleet.Addresses[0], Life: "a2"})
			require.Equal(t, Done, result.Code)
			require.Greater(t, result.Range.Floor, e.Ceiling, "a fresh range")
			require.NoError(t, m.check())
		})
	}
}

func TestOpenSetsAreLimited(t *testing.T) {
	m := played(t, &SetFleet{Fleet: three}, &Reconcile{}, &FinishReconcile{Version: 2})
	for i := range maxOpen {
		result, _ := m.Apply(assign("r1:1", fmt.Sprint(i)))
		require.Equal(t, Done, result.Code)
	}
	before := m.Snapshot()
	result, _ := m.Apply(assign("r1:1", "one more"))
	require.Equal(t, TooManyOpen, result.Code)
	require.Equal(t, before, m.Snapshot())
	sameAfterRestore(t, m)
	m.Apply(&CloseSets{Version: 4})
	result, _ = m.Apply(assign("r1:1", "one more"))
	require.Equal(t, Done, result.Code)
}

func TestRestoreRefusesImpossibleLives(t *testing.T) {
	for name, breakIt := range map[string]func(m *Machine){
		"too few lives":            func(m *Machine) { m.lives = m.lives[:2] },
		"a life with two votes":    func(m *Machine) { m.lives[1].Name = "c" },
		"a range without a life":   func(m *Machine) { m.lives[0].Name = "" },
		"a life without a name":    func(m *Machine) { m.lives[0] = Life{Version: m.lives[0].Version} },
		"a range without version":  func(m *Machine) { m.lives[0].Version = 0 },
		"a range of a later one":   func(m *Machine) { m.lives[0].Version = m.version + 1 },
		"a range of an older log":  func(m *Machine) { m.lives[0].Version = m.reconciled },
		"an empty range":           func(m *Machine) { m.lives[0].Floor = m.lives[0].Ceiling },
		"a range above all others": func(m *Machine) { m.lives[0].Ceiling = m.ceiling + 1 },
		"a range of a fresh log":   func(m *Machine) { m.used = false },
		"an open set, no fleet":    func(m *Machine) { m.ready, m.reconciled, m.lives = false, 0, make([]Life, 3) },
		"not reconciled":           func(m *Machine) { m.ready, m.reconciled, m.open = false, 0, nil },
		"an open set of two":       func(m *Machine) { m.open[0].Lives = m.open[0].Lives[1:] },
		"an open set twice":        func(m *Machine) { m.open = append(m.open, m.open[0]) },
		"the present set is open":  func(m *Machine) { m.open[0].Version = m.version },
		"a set of an older log":    func(m *Machine) { m.open[0].Version = m.reconciled - 2 },
	} {
		t.Run(name, func(t *testing.T) {
			m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2}, assign("r1:1", "a2"))
			_, err := Restore(m.Snapshot())
			require.NoError(t, err)
			breakIt(m)
			_, err = Restore(m.Snapshot())
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}
