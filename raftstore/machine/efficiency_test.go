package machine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func fleetOf(addresses ...string) engine.Fleet {
	return engine.Fleet{Namespace: "leased", Addresses: addresses, MaxTTL: time.Minute}
}

// assign names a life of a member.
func assign(member, life string) *NameLife { return &NameLife{Member: member, Life: life} }

var three = fleetOf("r1:1", "r2:1", "r3:1")

// becomesReady makes three the fleet of a scenario, ready at version 4.
func becomesReady() []step {
	return []step{
		{&SetFleet{Fleet: three}, "done v2", ""},
		{&Reconcile{}, "done v3", ""},
		{&FinishReconcile{Version: 3}, "done v4", ""},
	}
}

func TestFleet(t *testing.T) {
	run(t, []scenario{
		{"the first fleet takes effect at once until it has granted a lock", []step{
			{&SetFleet{Fleet: fleetOf("typo:1")}, "done v2", ""},
			{&SetFleet{Fleet: three, Version: 1}, "outdated v2", ""},
			{&SetFleet{Fleet: three, Version: 2}, "done v3", ""},
			{&SetFleet{Fleet: three}, "done v3", ""},
			{&SetFleet{Fleet: fleetOf("r3:1", "r1:1", "r2:1")}, "done v3", ""}, // in any order
			{assign("typo:1", "x"), "outdated v3", ""},
			{assign("r1:1", "x"), "not ready v3", ""},
			{&FinishFleet{Version: 2}, "done v3", ""},
			{&FinishFleet{Version: 4}, "outdated v3", ""},
		}},
		{"another fleet waits until the nodes of the old one are prepared", append(becomesReady(), []step{
			{assign("r1:1", "x"), "done v5", ""},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v6", ""},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v6", ""},
			{&SetFleet{Fleet: fleetOf("r1:1"), Now: true}, "done v7", ""},
			{&SetFleet{Fleet: fleetOf("r1:1"), Force: true}, "done v8", ""},
			{&SetFleet{Fleet: fleetOf("r1:1"), Now: true, Force: true}, "done v8", ""},
			{assign("r2:1", "y"), "done v9", ""}, // of the old fleet
			{&FinishFleet{Version: 4}, "outdated v9", ""},
			{&FinishFleet{Version: 6}, "done v10", ""},
			{&FinishFleet{Version: 6}, "done v10", ""},
			{assign("r1:1", "z"), "not ready v10", ""}, // the log reconciles with the new nodes first
			{&FinishReconcile{Version: 10}, "outdated v10", ""},
			{&Reconcile{}, "done v11", ""},
			{assign("r1:1", "z"), "done v12", ""}, // a new member
			{assign("r1:1", "w"), "done v13", ""},
			{assign("r2:1", "y"), "outdated v13", ""},
		}...)},
		{"setting the current fleet cancels a change", append(becomesReady(), []step{
			{&SetFleet{Fleet: fleetOf("r4:1")}, "done v5", ""},
			{&SetFleet{Fleet: fleetOf("r5:1")}, "done v6", ""}, // another fleet starts a new change
			{&FinishFleet{Version: 5}, "outdated v6", ""},
			{&SetFleet{Fleet: three}, "done v7", ""},
			{&FinishFleet{Version: 6}, "done v7", ""}, // too late, no effect
			{assign("r1:1", "x"), "done v8", ""},
		}...)},
		{"the fleet can be removed and set again", append(becomesReady(), []step{
			{&SetFleet{}, "done v5", ""},
			{&FinishFleet{Version: 5}, "done v6", ""},
			{&SetFleet{}, "done v6", ""},
			{&SetFleet{Fleet: three}, "done v7", ""},
			{assign("r1:1", "x"), "not ready v7", ""},
		}...)},
	})
}

// A member sets the fleet of its configuration only in a log that never had one: an
// operator may have removed the fleet.
func TestFleetSet(t *testing.T) {
	m := New()
	require.False(t, m.Efficiency().FleetSet)
	m.Apply(&SetFleet{})
	require.True(t, m.Efficiency().FleetSet, "a fleet without nodes")
	require.Zero(t, m.Version(), "clients do not need to know")
	sameAfterRestore(t, m)
	m.Apply(&MarkRestored{})
	require.True(t, m.Efficiency().FleetSet)
	m = New()
	m.Apply(&MarkRestored{})
	require.False(t, m.Efficiency().FleetSet)
	m.Apply(&MarkRestored{FleetSet: true})
	require.True(t, m.Efficiency().FleetSet, "the replaced state had a fleet once")
}

// No lock in efficiency mode is granted while the fleet changes: nodes of the old fleet would
// accept calls under the new version.
func TestTopologyIsNotReadyWhileTheFleetChanges(t *testing.T) {
	require.Equal(t, engine.Topology{}, New().Topology())
	m := played(t, mode("", engine.Correctness, 0))
	ready := func() bool {
		require.NoError(t, m.check())
		return m.Topology().Ready
	}
	for _, s := range becomesReady() {
		require.False(t, ready())
		m.Apply(s.command)
	}
	require.True(t, ready())
	m.Apply(assign("r1:1", "x"))
	m.Apply(&SetFleet{Fleet: fleetOf("r4:1"), Now: true})
	require.False(t, ready())
	e := m.Efficiency()
	require.Equal(t, fleetOf("r4:1"), e.Next)
	require.Equal(t, three, m.Topology().Fleet)
	require.True(t, e.NextNow && !e.NextForce && e.NextVersion == e.Version && e.Ready)
	m.Apply(&FinishFleet{Version: e.NextVersion})
	require.False(t, ready(), "not before a quorum of the new fleet has the floor")
	require.Equal(t, m.Ceiling(), m.Efficiency().Floor)
	m.Apply(&FinishReconcile{Version: m.Efficiency().Version})
	require.False(t, ready(), "a reconciliation with the old fleet does not count")
	m.Apply(&Reconcile{})
	m.Apply(&FinishReconcile{Version: m.Efficiency().Version})
	require.True(t, ready())
	require.Equal(t, fleetOf("r4:1"), m.Topology().Fleet)
	require.Equal(t, engine.Fleet{}, m.Efficiency().Next)
}

func TestReconcile(t *testing.T) {
	run(t, []scenario{
		{"a fresh log has nothing to reconcile", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{mode("e", engine.Efficiency, 0), "done v2", ""},
			{&SetFleet{Fleet: three}, "done v3", ""},
			{&FinishReconcile{Version: 3}, "outdated v3", ""},
			{&Reconcile{At: 2}, "outdated v3", ""}, // reports of another fleet
			{&Reconcile{Lives: []string{"x"}}, "outdated v3", ""},
			{&Reconcile{At: 3}, "done v4", ""},
			{assign("r1:1", "x"), "done v5", ""},
			{&FinishReconcile{Version: 3}, "outdated v5", ""},
			{&FinishReconcile{Version: 6}, "outdated v5", ""},
			{&FinishReconcile{Version: 4}, "done v6", ""},
			{&FinishReconcile{Version: 4}, "done v6", ""},
			{&Reconcile{Ceiling: 1 << 40}, "outdated v6", ""},
			{write(ann, 2, "b"), "granted #2", "ann/2 granted b #2"},
		}},
		{"the log moves past the reports of the nodes", []step{
			{&SetFleet{Fleet: three}, "done v2", ""},
			{&Reconcile{Version: 70, Ceiling: 5 << 32}, "done v71", ""},
			{assign("r1:1", "x"), "done v72", ""},
			{&Reconcile{Version: 60}, "done v73", ""}, // again, for a slower node
			{mode("x", engine.Correctness, 0), "done v74", ""},
			{&FinishReconcile{Version: 72}, "outdated v74", ""},
			{&FinishReconcile{Version: 74}, "done v75", ""},
			// 7, 8, 9; the log has forgotten nothing since.
			{write(ann, 1, "a"), "granted #38654705665", "ann/1 granted a #38654705665"},
		}},
		{"a log that was rolled back", append(becomesReady(), []step{
			{assign("r1:1", "x"), "done v5", ""},
			{&MarkRestored{Version: 9, Ceiling: 3 << 32}, "done v1048585", ""},
			{assign("r1:1", "x"), "not ready v1048585", ""},
			{&FinishReconcile{Version: 4}, "outdated v1048585", ""},
			{&SetFleet{Fleet: fleetOf("r9:1")}, "done v1048586", ""}, // not at once: the old fleet may have leases
			{&RaiseFloor{By: 1}, "done #12884901889", ""},
			{write(ann, 1, "a"), "not ready", ""}, // Redis may have granted larger tokens
			{&Reconcile{Version: 12}, "done v2097163", ""},
			{assign("r1:1", "x"), "done v2097164", ""},
			{&FinishReconcile{Version: 2097164}, "done v2097165", ""},
			{write(ann, 1, "a"), "granted #30064771074", "ann/1 granted a #30064771074"},
		}...)},
		{"no tokens left", []step{
			{&Reconcile{Ceiling: fencing.MaxToken - 4<<32 + 1}, "exhausted v1", ""},
			{&Reconcile{Ceiling: fencing.MaxToken - 4<<32}, "done v2", ""},
			{write(ann, 1, "a"), "exhausted", ""},
		}},
	})
	m := played(t, &SetFleet{Fleet: three}, &Reconcile{Version: 7, Ceiling: 1 << 32, Lives: []string{"", "x", "y"}},
		assign("r2:1", "z"))
	want := Efficiency{Version: 9, Fleet: three, Floor: 3 << 32, Ceiling: 4 << 32, ReconcileVersion: 8, FleetSet: true,
		Lives: []Life{{}, {Name: "z", Pending: true, Floor: 3 << 32, Version: 9}, {Name: "y"}}}
	require.Equal(t, want, m.Efficiency())
	require.Equal(t, fencing.Token(5<<32), m.LastToken())
	m.Apply(&FinishReconcile{Version: 8})
	want.Version, want.Ready = 10, true
	require.Equal(t, want, m.Efficiency())
	require.Equal(t, []string{"", "z", "y"}, m.Topology().Lives)
	m.Apply(&MarkRestored{Fleet: fleetOf("r9:1"), FleetSet: true})
	want.Version, want.Ready, want.Restored, want.ReconcileVersion = 10+1<<20, false, true, 0
	want.Lives, want.Fleet = []Life{{}}, fleetOf("r9:1") // the nodes are not rolled back with the log
	require.Equal(t, want, m.Efficiency())
}

// A log that was rolled back without a fleet has no nodes to wait for: neither mode stops,
// and the tokens of its next fleet start above those of one that it may have forgotten.
func TestRestoredWithoutAFleet(t *testing.T) {
	run(t, []scenario{
		{"no fleet", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{&MarkRestored{Ceiling: 3 << 32}, "done v1048577", ""},
			{write(ann, 2, "b"), "granted #2", "ann/2 granted b #2"},
			{&SetFleet{Fleet: three}, "done v1048578", ""},
			{write(ann, 3, "c"), "granted #3", "ann/3 granted c #3"},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v1048579", ""}, // skipped once
			{&Reconcile{}, "done v1048580", ""},
			{assign("r1:1", "x"), "done v1048581", ""}, // 3 + 64 + 3
			{&FinishReconcile{Version: 1048581}, "done v1048582", ""},
		}},
		{"a fleet that never was ready may have been replaced", []step{
			{&SetFleet{Fleet: three}, "done v2", ""},
			{&MarkRestored{}, "done v1048578", ""},
			{write(ann, 1, "a"), "not ready", ""},
			{&Reconcile{}, "done v2097155", ""},
			{assign("r1:1", "x"), "done v2097156", ""},
		}},
		{"unless the present fleet is known", []step{
			{&SetFleet{Fleet: three}, "done v2", ""},
			{&MarkRestored{Fleet: three, FleetSet: true}, "done v1048578", ""},
			{&Reconcile{}, "done v2097155", ""},
			{assign("r1:1", "x"), "done v2097156", ""},
		}},
		{"no tokens left", []step{
			{&RaiseFloor{By: fencing.MaxToken - 5}, "done #9007199254740986", ""},
			{&MarkRestored{}, "done v1048577", ""},
			{&SetFleet{Fleet: three}, "done v1048578", ""},
			{&Reconcile{}, "exhausted v1048578", ""},
		}},
	})
}

// The fleet of a log that was rolled back may have been replaced since. An operator can set
// the present one at once, and the log then waits for its nodes.
func TestForceFleetOnARestoredLog(t *testing.T) {
	run(t, []scenario{
		{"another fleet", append(becomesReady(), []step{
			{&MarkRestored{}, "done v1048580", ""},
			{&SetFleet{Fleet: fleetOf("r9:1"), Force: true}, "done v1048581", ""},
			{assign("r9:1", "x"), "not ready v1048581", ""},
			{write(ann, 1, "a"), "not ready", ""},
			{&Reconcile{Ceiling: 9 << 32}, "done v2097158", ""},
			{write(ann, 1, "a"), "not ready", ""},
			{&FinishReconcile{Version: 2097158}, "done v2097159", ""},
			{write(ann, 1, "a"), "granted #55834574849", "ann/1 granted a #55834574849"},
		}...)},
		{"that the backup was changing to", append(becomesReady(), []step{
			{&SetFleet{Fleet: fleetOf("r9:1")}, "done v5", ""},
			{&MarkRestored{}, "done v1048581", ""},
			{&SetFleet{Fleet: fleetOf("r9:1"), Force: true}, "done v1048582", ""},
			{&FinishFleet{Version: 5}, "done v1048582", ""},
			{&Reconcile{}, "done v2097159", ""},
		}...)},
		{"no fleet", append(becomesReady(), []step{
			{&MarkRestored{}, "done v1048580", ""},
			{&SetFleet{Force: true}, "done v1048581", ""},
			{write(ann, 1, "a"), "granted #274877906945", "ann/1 granted a #274877906945"},
		}...)},
	})
}

func TestMemberAPI(t *testing.T) {
	m := played(t, &SetMemberAPI{ID: "n1", Address: "n1:8400"}, &SetMemberAPI{ID: "n2", Address: "n2:8400"},
		&SetMemberAPI{ID: "n1", Address: "n1:9400"})
	require.Equal(t, "n1:9400", m.MemberAPIs()["n1"])
	require.Zero(t, m.Version(), "clients do not route by it")
	other, err := Restore(m.Snapshot())
	require.NoError(t, err)
	other.Apply(&SetMemberAPI{ID: "n1"})
	require.Empty(t, other.MemberAPIs()["n1"])
	require.Equal(t, "n2:8400", other.MemberAPIs()["n2"])
}

func TestVersionAt(t *testing.T) {
	const now = 1_790_000_000
	require.Greater(t, VersionAt(now+1), VersionAt(now))
	require.Zero(t, VersionAt(-1))
	for _, unix := range []int64{now, math.MaxInt64} {
		require.NoError(t, (&Reconcile{Version: VersionAt(unix) + 1000*versionStep}).validate())
		require.NoError(t, (&MarkRestored{Version: VersionAt(unix)}).validate())
	}
}
