package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func fleetOf(addresses ...string) engine.Fleet {
	return engine.Fleet{Namespace: "leased", Addresses: addresses, MaxTTL: time.Minute}
}

func assign(member string) *AssignRange { return &AssignRange{Member: member, Join: "nonce"} }

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
			{assign("typo:1"), "outdated v3", ""},
			{assign("r1:1"), "not ready v3", ""},
			{&FinishFleet{Version: 2}, "done v3", ""},
			{&FinishFleet{Version: 4}, "outdated v3", ""},
		}},
		{"another fleet waits until the nodes of the old one are prepared", append(becomesReady(), []step{
			{assign("r1:1"), "done (0, 1] v4", ""},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v5", ""},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v5", ""},
			{&SetFleet{Fleet: fleetOf("r1:1"), Now: true}, "done v6", ""},
			{&SetFleet{Fleet: fleetOf("r1:1"), Force: true}, "done v7", ""},
			{&SetFleet{Fleet: fleetOf("r1:1"), Now: true, Force: true}, "done v7", ""},
			{assign("r2:1"), "done (1, 2] v7", ""}, // of the old fleet
			{&FinishFleet{Version: 4}, "outdated v7", ""},
			{&FinishFleet{Version: 5}, "done v8", ""},
			{&FinishFleet{Version: 5}, "done v8", ""},
			{assign("r1:1"), "not ready v8", ""}, // the log reconciles with the new nodes first
			{&FinishReconcile{Version: 8}, "outdated v8", ""},
			{&Reconcile{}, "done v9", ""},
			{assign("r1:1"), "done (5, 6] first v9", ""}, // a new member
			{assign("r1:1"), "done (6, 7] v9", ""},
			{assign("r2:1"), "outdated v9", ""},
		}...)},
		{"setting the current fleet cancels a change", append(becomesReady(), []step{
			{&SetFleet{Fleet: fleetOf("r4:1")}, "done v5", ""},
			{&SetFleet{Fleet: fleetOf("r5:1")}, "done v6", ""}, // another fleet starts a new change
			{&FinishFleet{Version: 5}, "outdated v6", ""},
			{&SetFleet{Fleet: three}, "done v7", ""},
			{&FinishFleet{Version: 6}, "done v7", ""}, // too late, no effect
			{assign("r1:1"), "done (0, 1] v7", ""},
		}...)},
		{"the fleet can be removed and set again", append(becomesReady(), []step{
			{&SetFleet{}, "done v5", ""},
			{&FinishFleet{Version: 5}, "done v6", ""},
			{&SetFleet{}, "done v6", ""},
			{&SetFleet{Fleet: three}, "done v7", ""},
			{assign("r1:1"), "not ready v7", ""},
		}...)},
	})
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
	m.Apply(assign("r1:1"))
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

func TestRanges(t *testing.T) {
	run(t, []scenario{
		{"each range is above all earlier ones", append(becomesReady(), []step{
			{assign("r1:1"), "done (0, 1] v4", ""},
			{assign("r2:1"), "done (1, 2] v4", ""},
			{assign("r1:1"), "done (2, 3] v4", ""},
			{&RaiseCeiling{To: 2 << 32}, "done v4", ""}, // never lowered
			{assign("r1:1"), "done (3, 4] v4", ""},
			{&RaiseCeiling{To: 7 << 32}, "done v4", ""},
			{assign("r3:1"), "done (7, 8] v4", ""},
			{mode("a", engine.Efficiency, 0), "done v5", ""},
			{assign("r3:1"), "done (9, 10] v5", ""},
			{assign("r4:1"), "outdated v5", ""},
		}...)},
		{"ranges can be exhausted", append(becomesReady(), []step{
			{&RaiseCeiling{To: fencing.MaxToken - 1<<32}, "done v4", ""},
			{assign("r1:1"), "done (2097150, 2097151] v4", ""},
			{assign("r1:1"), "exhausted v4", ""},
			{&RaiseCeiling{To: fencing.MaxToken}, "done v4", ""},
		}...)},
	})
}

func TestReconcile(t *testing.T) {
	run(t, []scenario{
		{"a fresh log has nothing to reconcile", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{mode("e", engine.Efficiency, 0), "done v2", ""},
			{&SetFleet{Fleet: three}, "done v3", ""},
			{&FinishReconcile{Version: 3}, "outdated v3", ""},
			{&Reconcile{}, "done v4", ""},
			{assign("r1:1"), "done (1, 2] first v4", ""},
			{&FinishReconcile{Version: 3}, "outdated v4", ""},
			{&FinishReconcile{Version: 5}, "outdated v4", ""},
			{&FinishReconcile{Version: 4}, "done v5", ""},
			{&FinishReconcile{Version: 4}, "done v5", ""},
			{&Reconcile{Ceiling: 1 << 40}, "outdated v5", ""},
			{write(ann, 2, "b"), "granted #2", "ann/2 granted b #2"},
		}},
		{"the log moves past the reports of the nodes", []step{
			{&SetFleet{Fleet: three}, "done v2", ""},
			{&Reconcile{Version: 70, Ceiling: 5 << 32}, "done v71", ""},
			{assign("r1:1"), "done (8, 9] first v71", ""},
			{&Reconcile{Version: 60}, "done v72", ""}, // again, for a slower node
			{mode("x", engine.Correctness, 0), "done v73", ""},
			{&FinishReconcile{Version: 71}, "outdated v73", ""},
			{&FinishReconcile{Version: 73}, "done v74", ""},
			{write(ann, 1, "a"), "granted #55834574849", "ann/1 granted a #55834574849"}, // 9, then 11, 12, 13
		}},
		{"a log that was rolled back", append(becomesReady(), []step{
			{assign("r1:1"), "done (0, 1] v4", ""},
			{&MarkRestored{Version: 9, Ceiling: 3 << 32}, "done v4294967305", ""},
			{assign("r1:1"), "not ready v4294967305", ""},
			{&FinishReconcile{Version: 4}, "outdated v4294967305", ""},
			{&SetFleet{Fleet: fleetOf("r9:1")}, "done v4294967306", ""}, // not at once: the old fleet may have leases
			{&RaiseFloor{By: 1}, "done #12884901889", ""},
			{write(ann, 1, "a"), "not ready", ""}, // Redis may have granted larger tokens
			{&Reconcile{Version: 12}, "done v8589934603", ""},
			{assign("r1:1"), "done (6, 7] first v8589934603", ""},
			{&FinishReconcile{Version: 8589934603}, "done v8589934604", ""},
			{write(ann, 1, "a"), "granted #30064771074", "ann/1 granted a #30064771074"},
		}...)},
		{"no tokens left", []step{
			{&Reconcile{Ceiling: fencing.MaxToken - 4<<32 + 1}, "exhausted v1", ""},
			{&Reconcile{Ceiling: fencing.MaxToken - 4<<32}, "done v2", ""},
			{write(ann, 1, "a"), "exhausted", ""},
		}},
	})
	m := played(t, &SetFleet{Fleet: three}, &Reconcile{Version: 7, Ceiling: 1 << 32}, assign("r2:1"), assign("r1:1"))
	want := Efficiency{Version: 8, Fleet: three, Floor: 3 << 32, Ceiling: 6 << 32, ReconcileVersion: 8, Assigned: []string{"r1:1", "r2:1"}}
	require.Equal(t, want, m.Efficiency())
	require.Equal(t, fencing.Token(5<<32), m.LastToken())
	m.Apply(&FinishReconcile{Version: 8})
	want.Version, want.ReconcileVersion, want.Ready = 9, 0, true
	want.Assigned = three.Addresses // any of them may have voted before
	require.Equal(t, want, m.Efficiency())
	m.Apply(&MarkRestored{Fleet: fleetOf("r9:1")})
	want.Version, want.Ready, want.Restored = 9+1<<32, false, true
	want.Assigned, want.Fleet = nil, fleetOf("r9:1") // the nodes are not rolled back with the log
	require.Equal(t, want, m.Efficiency())
}

func TestMemberAPI(t *testing.T) {
	m := played(t, &SetMemberAPI{ID: "n1", Address: "n1:8400"}, &SetMemberAPI{ID: "n2", Address: "n2:8400"}, &SetMemberAPI{ID: "n1", Address: "n1:9400"})
	require.Equal(t, "n1:9400", m.MemberAPI("n1"))
	require.Zero(t, m.Version(), "clients do not route by it")
	other, err := Restore(m.Snapshot())
	require.NoError(t, err)
	other.Apply(&SetMemberAPI{ID: "n1"})
	require.Empty(t, other.MemberAPI("n1"))
	require.Equal(t, "n2:8400", other.MemberAPI("n2"))
}
