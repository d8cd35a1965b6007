package machine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A life is named once, whoever asks and how often.
func TestLivesAreNamedOnce(t *testing.T) {
	run(t, []scenario{
		{"each name makes a version", append(becomesReady(), []step{
			{assign("r1:1", "a"), "done v5", ""},
			{assign("r2:1", "b"), "done v6", ""},
			{assign("r1:1", "c"), "done v7", ""},
			{&RaiseCeiling{To: 2 << 32}, "done v7", ""}, // never lowered
			{assign("r1:1", "d"), "done v8", ""},
			{&RaiseCeiling{To: 7 << 32}, "done v8", ""},
			{assign("r3:1", "e"), "done v9", ""},
			{mode("a", engine.Efficiency, 0), "done v10", ""},
			{assign("r3:1", "f"), "done v11", ""},
			{assign("r4:1", "g"), "outdated v11", ""},
		}...)},
		{"a life is named once", append(becomesReady(), []step{
			{&NameLife{Member: "r1:1", Life: "a", Version: 4}, "done v5", ""},
			{&NameLife{Member: "r1:1", Life: "a", Version: 4}, "done v5", ""}, // repeated
			{assign("r2:1", "a"), "outdated v5", ""},                          // one server has one vote
			{mode("x", engine.Efficiency, 0), "done v6", ""},
			{assign("r1:1", "a"), "done v6", ""},
			{&NameLife{Member: "r1:1", Life: "b", Version: 5}, "outdated v6", ""}, // the log has changed
			{&NameLife{Member: "r1:1", Life: "b", Version: 6}, "done v7", ""},
		}...)},
		{"a life that has voted is not named again", append(becomesReady(), []step{
			{assign("r1:1", "a"), "done v5", ""},
			{&FinishRecovery{Member: "r1:1", Life: "b"}, "outdated v5", ""},
			{&FinishRecovery{Member: "r2:1", Life: "a"}, "outdated v5", ""},
			{&FinishRecovery{Member: "r1:1", Life: "a"}, "done v5", ""},
			{&FinishRecovery{Member: "r1:1", Life: "a"}, "done v5", ""},
			{assign("r1:1", "a"), "outdated v5", ""},
			{assign("r1:1", "b"), "done v6", ""},
			{&FinishRecovery{Member: "r1:1", Life: "a"}, "outdated v6", ""},
		}...)},
		{"tokens can be exhausted", append(becomesReady(), []step{
			{&RaiseCeiling{To: fencing.MaxToken - 1<<32}, "done v4", ""},
			{assign("r1:1", "a"), "done v5", ""},
			{assign("r1:1", "b"), "done v6", ""},
			{&RaiseCeiling{To: fencing.MaxToken}, "done v6", ""},
			{assign("r1:1", "c"), "exhausted v6", ""},
		}...)},
	})
}

// A recovery names the new life in the place of the old one, under a new version. The
// former set stays open until the leader has closed it.
func TestRecoveryIsAChangeOfTheFleet(t *testing.T) {
	m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2})
	require.Equal(t, []string{"a", "b", "c"}, m.Topology().Lives)
	result, _ := m.Apply(assign("r1:1", "a2"))
	require.Equal(t, Done, result.Code)
	require.Equal(t, Life{Name: "a2", Pending: true, Version: 4}, m.Efficiency().Lives[0])
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
	m.Apply(assign("r1:1", "a2"))
	require.Equal(t, uint64(4), m.Efficiency().Lives[0].Version, "the version that first named the life")

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

// A life gets its floor when no older set is open. If the tokens that the older sets have granted are known, neither
// the floor nor the ceiling takes a step.
func TestFloorOfALife(t *testing.T) {
	const ceiling = 1 << 32
	ready := func() *Machine {
		m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2},
			assign("r1:1", "a2"), assign("r2:1", "b2"))
		require.Equal(t, []Life{{Name: "a2", Pending: true, Version: 4}, {Name: "b2", Pending: true, Version: 5},
			{Name: "c"}}, m.Efficiency().Lives)
		require.EqualValues(t, ceiling, m.Ceiling())
		return m
	}
	floors := func(m *Machine) (list []fencing.Token) {
		sameAfterRestore(t, m)
		for _, l := range m.Efficiency().Lives {
			list = append(list, l.Floor)
		}
		return list
	}
	m := ready()
	m.Apply(&CloseSets{Version: 4, Granted: 7})
	require.Equal(t, []fencing.Token{7, 0, 0}, floors(m), "a set is older than b2")
	m.Apply(&CloseSets{Version: 4, Granted: 9})
	require.Equal(t, []fencing.Token{7, 0, 0}, floors(m), "a copy of an older leader changes nothing")
	m.Apply(&CloseSets{Version: 5, Granted: 8})
	require.Equal(t, []fencing.Token{7, 8, 0}, floors(m))
	require.EqualValues(t, ceiling, m.Ceiling())
	m.Apply(&FinishRecovery{Member: "r1:1", Life: "a2"})
	require.Equal(t, []fencing.Token{0, 8, 0}, floors(m))

	m = ready()
	m.Apply(&CloseSets{Version: 5})
	require.Equal(t, []fencing.Token{ceiling, ceiling, 0}, floors(m), "nobody knows what was granted")
	require.EqualValues(t, 2*ceiling, m.Ceiling())

	m = ready()
	m.Apply(&CloseSets{Version: 5, Granted: fencing.MaxToken})
	require.Equal(t, []fencing.Token{ceiling, ceiling, 0}, floors(m), "no node exceeds the ceiling")

	m = ready()
	m.Apply(&RaiseFloor{By: 20})
	m.Apply(mode("x", engine.Efficiency, 0))
	m.Apply(&CloseSets{Version: 5, Granted: 8})
	require.Equal(t, []fencing.Token{ceiling + 20, ceiling + 20, 0}, floors(m), "locks migrate with these tokens")
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
			m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2},
				assign("r1:1", "a2"))
			for _, c := range commands {
				result, _ := m.Apply(c)
				require.Equal(t, Done, result.Code)
			}
			e := m.Efficiency()
			require.Empty(t, e.Open)
			for _, l := range e.Lives {
				require.Zero(t, l)
			}
			result, _ := m.Apply(&NameLife{Member: e.Fleet.Addresses[0], Life: "a2"})
			require.Equal(t, NotReady, result.Code, "the log may have forgotten its ceiling")
			m.Apply(&Reconcile{})
			result, _ = m.Apply(&NameLife{Member: e.Fleet.Addresses[0], Life: "a2"})
			require.Equal(t, Done, result.Code)
			require.GreaterOrEqual(t, m.Efficiency().Lives[0].Floor, e.Ceiling, "above everything that was granted before")
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
		"a version without a life": func(m *Machine) { m.lives[0].Name = "" },
		"a life without a name":    func(m *Machine) { m.lives[0] = Life{Version: m.lives[0].Version} },
		"pending without version":  func(m *Machine) { m.lives[0].Version = 0 },
		"a life of a later one":    func(m *Machine) { m.lives[0].Version = m.version + 1 },
		"a life of an older log":   func(m *Machine) { m.lives[0].Version = m.reconciled },
		"a floor before its time":  func(m *Machine) { m.lives[0].Floor = 1 },
		"a floor of a voter":       func(m *Machine) { m.lives[0].Pending, m.lives[0].Floor = false, 1 },
		"a floor above the others": func(m *Machine) { m.open, m.lives[0].Floor = nil, m.ceiling+1 },
		"a life of a fresh log":    func(m *Machine) { m.used = false },
		"an open set, no fleet":    func(m *Machine) { m.ready, m.reconciled, m.lives = false, 0, make([]Life, 3) },
		"not reconciled":           func(m *Machine) { m.ready, m.reconciled, m.open = false, 0, nil },
		"an open set of two":       func(m *Machine) { m.open[0].Lives = m.open[0].Lives[1:] },
		"an open set twice":        func(m *Machine) { m.open = append(m.open, m.open[0]) },
		"the present set is open":  func(m *Machine) { m.open[0].Version = m.version },
		"a set of an older log":    func(m *Machine) { m.open[0].Version = m.reconciled - 2 },
	} {
		t.Run(name, func(t *testing.T) {
			m := played(t, &SetFleet{Fleet: three}, &Reconcile{Lives: []string{"a", "b", "c"}}, &FinishReconcile{Version: 2},
				assign("r1:1", "a2"))
			_, err := Restore(m.Snapshot())
			require.NoError(t, err)
			breakIt(m)
			_, err = Restore(m.Snapshot())
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}
