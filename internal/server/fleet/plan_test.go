package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

const (
	maxTTL = time.Minute
	jump   = recovery.Jump
)

var (
	three = engine.Fleet{Namespace: "n", Addresses: []string{"a:1", "b:1", "c:1"}, MaxTTL: maxTTL}
	other = engine.Fleet{Namespace: "n", Addresses: []string{"d:1"}, MaxTTL: maxTTL}
	start = engine.NewInstant(time.Unix(1000, 0), time.Hour)
)

// ready returns the state of a log whose fleet serves, at a version.
func ready(version uint64) machine.Efficiency {
	return machine.Efficiency{Version: version, Fleet: three, Ready: true, Ceiling: 3 * jump, Assigned: three.Addresses}
}

// voter returns a node with a version that otherwise meets the goal.
func voter(version uint64) fleet.Node {
	return fleet.Node{Report: recovery.Report{Reached: true, Live: &recovery.State{Version: version, Fleet: three.Fingerprint(), Ceiling: 3 * jump}}}
}

// empty returns a node that lost its data.
func empty() fleet.Node { return fleet.Node{Report: recovery.Report{Reached: true}} }

// lost returns a node that cannot be reached.
func lost() fleet.Node { return fleet.Node{} }

// former returns an empty node that still has the data from before a restart.
func former(version uint64, ceiling fencing.Token) fleet.Node {
	return fleet.Node{Report: recovery.Report{Reached: true, Former: &recovery.State{Version: version, Ceiling: ceiling}}}
}

func kinds(step fleet.Step) (list []fleet.Kind) {
	for _, a := range step.Actions {
		list = append(list, a.Kind)
	}
	return list
}

func TestPlanStep(t *testing.T) {
	leaving := machine.Migration{Prefix: "p/", From: engine.Efficiency, To: engine.Correctness, Version: 7}
	coming := machine.Migration{Prefix: "p/", From: engine.Correctness, To: engine.Efficiency, Version: 7}
	with := func(s machine.Efficiency, changes ...func(*machine.Efficiency)) machine.Efficiency {
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	migrating := func(m machine.Migration) func(*machine.Efficiency) {
		return func(s *machine.Efficiency) { s.Migrations = []machine.Migration{m} }
	}
	now := func(m machine.Migration) machine.Migration { m.Now = true; return m }
	restored := func(s *machine.Efficiency) { s.Ready, s.Restored = false, true }
	fresh := machine.Efficiency{Version: 1, Fleet: three, Fresh: true}
	for _, c := range []struct {
		name      string
		state     machine.Efficiency
		nodes     []fleet.Node
		want      []fleet.Kind
		migration string
		waiting   string
	}{
		{name: "no fleet", state: machine.Efficiency{Version: 3}},
		{name: "all nodes at the goal", state: ready(7), nodes: []fleet.Node{voter(7), voter(7), voter(7)}},
		{name: "another service uses the nodes", state: ready(7), nodes: []fleet.Node{voter(6), empty(), voter(9)},
			waiting: "another service to stop using the Redis nodes under the same namespace; give one of the services another namespace"},
		{name: "a node behind", state: ready(7), nodes: []fleet.Node{voter(6), voter(7), lost()}, want: []fleet.Kind{fleet.Advance}},
		{name: "an empty node", state: ready(7), nodes: []fleet.Node{empty(), voter(7), voter(7)}, want: []fleet.Kind{fleet.Join}},
		{name: "all empty at once", state: ready(7), nodes: []fleet.Node{empty(), empty(), empty()}, want: []fleet.Kind{fleet.Join, fleet.Join, fleet.Join}},
		{name: "a first fleet", state: fresh, nodes: []fleet.Node{empty(), empty(), lost()}, want: []fleet.Kind{fleet.Reconcile},
			waiting: "2 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "a first fleet that is reconciled", state: with(fresh, func(s *machine.Efficiency) { s.ReconcileVersion = 1 }),
			nodes: []fleet.Node{empty(), empty(), lost()}, want: []fleet.Kind{fleet.Join, fleet.Join},
			waiting: "0 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "reconciled at a quorum", state: with(ready(7), restored, func(s *machine.Efficiency) { s.ReconcileVersion = 7 }),
			nodes: []fleet.Node{voter(7), voter(7), lost()}, want: []fleet.Kind{fleet.FinishReconcile},
			waiting: "2 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "restored, nodes without evidence", state: with(ready(7), restored), nodes: []fleet.Node{empty(), empty(), voter(9)},
			waiting: "1 of 3 Redis nodes have reported their tokens, 2 are needed; if the others are lost, provide a floor with 'leased redis init --floor'"},
		{name: "restored, data from before a restart counts", state: with(ready(7), restored, migrating(leaving)), nodes: []fleet.Node{former(8, jump), empty(), voter(9)},
			want: []fleet.Kind{fleet.Reconcile}, waiting: "2 of 3 Redis nodes have reported their tokens, 2 are needed",
			migration: "efficiency mode to be ready: 2 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "to correctness, before a quorum", state: with(ready(7), migrating(leaving)), nodes: []fleet.Node{voter(7), voter(6), lost()},
			want: []fleet.Kind{fleet.Advance}, migration: "1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "to correctness, leases live", state: with(ready(7), migrating(leaving)), nodes: []fleet.Node{voter(7), voter(7), lost()},
			migration: "leases in efficiency mode to end, 1m0s left"},
		{name: "to correctness, now", state: with(ready(7), migrating(now(leaving))), nodes: []fleet.Node{voter(7), voter(7), lost()},
			want: []fleet.Kind{fleet.FinishMigration}},
		{name: "to correctness, now, before a quorum", state: with(ready(7), migrating(now(leaving))), nodes: []fleet.Node{voter(7), lost(), lost()},
			migration: "1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "to efficiency, held", state: with(ready(7), migrating(machine.Migration{Prefix: "p/", From: engine.Correctness, To: engine.Efficiency, Version: 7, Holders: 3})),
			nodes: []fleet.Node{voter(7), voter(7), voter(7)}, migration: "3 holders to release"},
		{name: "to efficiency", state: with(ready(7), migrating(coming)), nodes: []fleet.Node{voter(7), voter(7), lost()}, want: []fleet.Kind{fleet.FinishMigration}},
		{name: "to efficiency, floor on too few", state: with(ready(7), migrating(coming), func(s *machine.Efficiency) { s.Floor = 5 }),
			nodes: []fleet.Node{voter(7), voter(7), lost()}, want: []fleet.Kind{fleet.Advance, fleet.Advance},
			migration: "0 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "to efficiency, without a fleet", state: machine.Efficiency{Version: 7, Migrations: []machine.Migration{coming}}, want: []fleet.Kind{fleet.FinishMigration}},
		{name: "another fleet, before a quorum", state: with(ready(7), func(s *machine.Efficiency) { s.Next, s.NextVersion = other, 7 }),
			nodes: []fleet.Node{voter(7), voter(6), lost()}, want: []fleet.Kind{fleet.Advance},
			waiting: "the old fleet: 1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "another fleet, leases live", state: with(ready(7), func(s *machine.Efficiency) { s.Next, s.NextVersion = other, 7 }),
			nodes: []fleet.Node{voter(7), voter(7), lost()}, waiting: "leases of the old fleet to end, 1m0s left"},
		{name: "another fleet, now", state: with(ready(7), func(s *machine.Efficiency) { s.Next, s.NextVersion, s.NextNow = other, 7, true }),
			nodes: []fleet.Node{voter(7), voter(7), lost()}, want: []fleet.Kind{fleet.FinishFleet}},
		{name: "another fleet, the old one lost", state: with(ready(7), func(s *machine.Efficiency) { s.Next, s.NextVersion, s.NextForce, s.NextNow = other, 7, true, true }),
			nodes: []fleet.Node{lost(), lost(), lost()}, want: []fleet.Kind{fleet.FinishFleet}},
	} {
		t.Run(c.name, func(t *testing.T) {
			step := fleet.NewPlan().Step(c.state, c.nodes, start)
			require.Equal(t, c.want, kinds(step))
			require.Equal(t, c.migration, step.Migrations["p/"])
			require.Equal(t, c.waiting, step.Waiting)
		})
	}
}

// A migration waits one maximal TTL from the time when a quorum rejects older
// versions, and a new leader waits again.
func TestPlanWaitsForLeases(t *testing.T) {
	state := ready(7)
	state.Migrations = []machine.Migration{{Prefix: "p/", From: engine.Efficiency, To: engine.Correctness, Version: 7}}
	plan, nodes := fleet.NewPlan(), []fleet.Node{voter(7), voter(7), voter(7)}
	step := plan.Step(state, []fleet.Node{voter(7), voter(6), voter(6)}, start)
	require.Equal(t, []fleet.Kind{fleet.Advance, fleet.Advance}, kinds(step))
	met := start.Add(time.Hour)
	require.Empty(t, kinds(plan.Step(state, nodes, met)))
	require.Equal(t, "leases in efficiency mode to end, 1s left", plan.Step(state, nodes, met.Add(maxTTL-time.Millisecond)).Migrations["p/"])
	require.Equal(t, []fleet.Kind{fleet.FinishMigration}, kinds(plan.Step(state, nodes, met.Add(maxTTL))))
	require.Empty(t, kinds(fleet.NewPlan().Step(state, nodes, met.Add(maxTTL))), "a new leader does not know that time")

	state.Migrations[0].Version, state.Version = 9, 9 // aborted and started again
	require.NotContains(t, kinds(plan.Step(state, nodes, met.Add(maxTTL))), fleet.FinishMigration)
}

// An empty node joins, gets a range of tokens and is initialised, in this order, and
// from the start again if it restarts.
func TestPlanRecovers(t *testing.T) {
	state, plan := ready(7), fleet.NewPlan()
	joined := func(join string, quarantine time.Duration) []fleet.Node {
		n := empty()
		n.Joining, n.Quarantine = join, quarantine
		return []fleet.Node{n, voter(7), voter(7)}
	}
	require.Equal(t, []fleet.Kind{fleet.Join}, kinds(plan.Step(state, joined("", 0), start)))
	plan.Joined("a:1", "j1")
	step := plan.Step(state, joined("j1", maxTTL), start)
	require.Empty(t, kinds(step), "the quarantine is not over")
	require.Equal(t, "quarantine of Redis node a:1, 1m0s left", step.Waiting)
	require.True(t, step.Busy)
	require.Equal(t, []fleet.Kind{fleet.Join}, kinds(plan.Step(state, joined("", 0), start)), "the node restarted again")
	plan.Joined("a:1", "j2")
	require.Equal(t, []fleet.Kind{fleet.Assign}, kinds(plan.Step(state, joined("j2", 0), start)))
	plan.Assigned("a:1", machine.Range{Floor: 3 * jump, Ceiling: 4 * jump, Version: 7})
	state.Ceiling = 4 * jump
	require.Equal(t, []fleet.Kind{fleet.Advance, fleet.Advance, fleet.Initialise}, kinds(plan.Step(state, joined("j2", 0), start)),
		"the other nodes get the new ceiling first")
	plan.Wait("a:1", start.Add(time.Second))
	require.NotContains(t, kinds(plan.Step(state, joined("j2", 0), start)), fleet.Initialise)
	require.Contains(t, kinds(plan.Step(state, joined("j2", 0), start.Add(time.Second))), fleet.Initialise)
	require.Contains(t, kinds(plan.Step(state, joined("j3", 0), start.Add(time.Second))), fleet.Join, "another leader made it join")

	restored := state
	restored.Ready, restored.Restored, restored.Version = false, true, 1<<33
	plan.Step(restored, joined("j2", 0), start)
	restored.ReconcileVersion = restored.Version
	require.Contains(t, kinds(plan.Step(restored, joined("j2", 0), start)), fleet.Join, "the log has forgotten the range")
}

// A node that never voted has forgotten nothing, and needs no quarantine.
func TestPlanFirstRange(t *testing.T) {
	state, plan := ready(7), fleet.NewPlan()
	state.Assigned = []string{"b:1", "c:1"}
	n := empty()
	n.Joining, n.Quarantine = "j1", maxTTL
	plan.Step(state, []fleet.Node{n, voter(7), voter(7)}, start)
	plan.Joined("a:1", "j1")
	require.Equal(t, []fleet.Kind{fleet.Assign}, kinds(plan.Step(state, []fleet.Node{n, voter(7), voter(7)}, start)))
}

// The Plan raises the ceiling long before a node reaches it.
func TestPlanRaisesTheCeiling(t *testing.T) {
	busy := voter(7)
	busy.Live.Max = 3*jump - jump/2 + 1
	step := fleet.NewPlan().Step(ready(7), []fleet.Node{busy, voter(7), voter(7)}, start)
	require.Equal(t, []fleet.Action{{Kind: fleet.RaiseCeiling, Ceiling: 4 * jump}}, step.Actions)
}
