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
	life := machine.Life{Name: "s.j"}
	return machine.Efficiency{Version: version, Fleet: three, Ready: true, FleetSet: true, ReconcileVersion: 3,
		Ceiling: 3 * jump, Lives: []machine.Life{life, life, life}}
}

// voter returns a node with a version that otherwise meets the goal.
func voter(version uint64) recovery.Node {
	return recovery.Node{Report: recovery.Report{Reached: true, Server: "s",
		Live: &recovery.State{Join: "j", Version: version, Fleet: three.Fingerprint(), Ceiling: 3 * jump}}}
}

// retired returns a node that knows the fleet that replaces its own.
func retired(version uint64, successor string) recovery.Node {
	n := voter(version)
	n.Live.Successor = successor
	return n
}

// empty returns a node that lost its data: another run of its server.
func empty() recovery.Node { return recovery.Node{Report: recovery.Report{Reached: true, Server: "t"}} }

// lost returns a node that cannot be reached.
func lost() recovery.Node { return recovery.Node{} }

// former returns an empty node that still has the data from before a restart.
func former(version uint64, ceiling fencing.Token) recovery.Node {
	return recovery.Node{Report: recovery.Report{Reached: true, Server: "t", FormerServer: "s",
		Former: &recovery.State{Version: version, Fleet: three.Fingerprint(), Ceiling: ceiling}}}
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
	restored := func(s *machine.Efficiency) { s.Ready, s.Restored, s.ReconcileVersion = false, true, 0 }
	changing := func(s *machine.Efficiency) { s.Next, s.NextVersion = other, 7 }
	const cancelled = "; if that change was cancelled, 'leased redis init --floor FLOOR --force' continues with the " +
		"old fleet"
	told := retired(7, "d:1")
	fresh := machine.Efficiency{Version: 1, Fleet: three, Fresh: true, Lives: make([]machine.Life, 3)}
	for _, c := range []struct {
		name      string
		state     machine.Efficiency
		nodes     []recovery.Node
		want      []fleet.Kind
		migration string
		waiting   string
	}{
		{name: "no fleet", state: machine.Efficiency{Version: 3}},
		{name: "all nodes at the goal", state: ready(7), nodes: []recovery.Node{voter(7), voter(7), voter(7)}},
		{name: "another service uses the nodes", state: ready(7), nodes: []recovery.Node{voter(6), empty(), voter(9)},
			waiting: "another service to stop using the Redis nodes under the same namespace; give one of the services " +
				"another namespace"},
		{name: "a node behind", state: ready(7), nodes: []recovery.Node{voter(6), voter(7), lost()},
			want: []fleet.Kind{fleet.Advance}},
		{name: "an empty node", state: ready(7), nodes: []recovery.Node{empty(), voter(7), voter(7)},
			want: []fleet.Kind{fleet.Join}},
		{name: "all empty at once", state: ready(7), nodes: []recovery.Node{empty(), empty(), empty()},
			want: []fleet.Kind{fleet.Join, fleet.Join, fleet.Join}},
		{name: "a first fleet", state: fresh, nodes: []recovery.Node{empty(), empty(), lost()},
			want:    []fleet.Kind{fleet.Reconcile},
			waiting: "2 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "a first fleet that is reconciled", state: with(fresh, func(s *machine.Efficiency) { s.ReconcileVersion = 1 }),
			nodes: []recovery.Node{empty(), empty(), lost()}, want: []fleet.Kind{fleet.Join, fleet.Join},
			waiting: "0 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "reconciled at a quorum", state: with(ready(7), restored, func(s *machine.Efficiency) {
			s.ReconcileVersion = 7
		}),
			nodes: []recovery.Node{voter(7), voter(7), lost()}, want: []fleet.Kind{fleet.FinishReconcile},
			waiting: "2 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "reconciled before a node reported that the discarded log had advanced further",
			state: with(ready(7), restored, func(s *machine.Efficiency) { s.ReconcileVersion = 7 }),
			nodes: []recovery.Node{voter(7), voter(7), voter(9)}, want: []fleet.Kind{fleet.Reconcile},
			waiting: "3 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "restored, nodes without evidence", state: with(ready(7), restored), nodes: []recovery.Node{empty(), empty(),
			voter(9)},
			waiting: "1 of 3 Redis nodes have reported their tokens, 2 are needed; if the others are lost, provide a floor " +
				"with 'leased redis init --floor'"},
		{name: "restored, data from before a restart counts", state: with(ready(7), restored, migrating(leaving)),
			nodes: []recovery.Node{former(8, jump), empty(), voter(9)},
			want:  []fleet.Kind{fleet.Reconcile}, waiting: "2 of 3 Redis nodes have reported their tokens, 2 are needed",
			migration: "efficiency mode to be ready: 2 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "restored, with the nodes of a fleet that was replaced", state: with(ready(7), restored),
			nodes: []recovery.Node{retired(9, "d:1,e:1"), voter(9), voter(9)},
			waiting: "another fleet: the fleet was replaced by d:1,e:1 after this backup; set the present fleet with " +
				"'leased redis fleet set --force d:1 e:1'" + cancelled},
		{name: "restored, a node missed that a change was cancelled", state: with(ready(7), restored),
			nodes: []recovery.Node{retired(8, "d:1"), voter(9), lost()},
			want:  []fleet.Kind{fleet.Reconcile}, waiting: "2 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "restored, with the nodes of a fleet that was removed", state: with(ready(7), restored),
			nodes: []recovery.Node{retired(9, "none"), voter(9), lost()},
			waiting: "another fleet: the fleet was removed after this backup; remove it again: migrate all locks to " +
				"correctness mode, and set a fleet without nodes, with force" + cancelled},
		{name: "a fleet that was used before", state: with(ready(7), restored, func(s *machine.Efficiency) {
			s.Restored = false
		}),
			nodes: []recovery.Node{retired(6, "d:1"), retired(6, "d:1"), lost()}, want: []fleet.Kind{fleet.Reconcile},
			waiting: "2 of 3 Redis nodes have reported their tokens, 2 are needed"},
		{name: "a change of the fleet that was cancelled", state: ready(7), nodes: []recovery.Node{told, voter(7), voter(7)},
			want: []fleet.Kind{fleet.Advance}},
		{name: "to correctness, before a quorum", state: with(ready(7), migrating(leaving)), nodes: []recovery.Node{voter(7),
			voter(6), lost()},
			want: []fleet.Kind{fleet.Advance}, migration: "1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "to correctness, leases live", state: with(ready(7), migrating(leaving)), nodes: []recovery.Node{voter(7),
			voter(7), lost()},
			migration: "leases in efficiency mode to end, 1m0s left"},
		{name: "to correctness, now", state: with(ready(7), migrating(now(leaving))), nodes: []recovery.Node{voter(7),
			voter(7), lost()},
			want: []fleet.Kind{fleet.FinishMigration}},
		{name: "to correctness, now, before a quorum", state: with(ready(7), migrating(now(leaving))),
			nodes:     []recovery.Node{voter(7), lost(), lost()},
			migration: "1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "to efficiency, held", state: with(ready(7),
			migrating(machine.Migration{Prefix: "p/", From: engine.Correctness, To: engine.Efficiency, Version: 7, Holders: 3})),
			nodes: []recovery.Node{voter(7), voter(7), voter(7)}, migration: "3 holders to release"},
		{name: "to efficiency", state: with(ready(7), migrating(coming)), nodes: []recovery.Node{voter(7), voter(7), lost()},
			want: []fleet.Kind{fleet.FinishMigration}},
		{name: "to efficiency, floor on too few", state: with(ready(7), migrating(coming), func(s *machine.Efficiency) {
			s.Floor = 5
		}),
			nodes: []recovery.Node{voter(7), voter(7), lost()}, want: []fleet.Kind{fleet.Advance, fleet.Advance},
			migration: "0 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "to efficiency, without a fleet", state: machine.Efficiency{Version: 7,
			Migrations: []machine.Migration{coming}}, want: []fleet.Kind{fleet.FinishMigration}},
		{name: "another fleet, before a quorum", state: with(ready(7), changing), nodes: []recovery.Node{told, voter(6),
			lost()},
			want: []fleet.Kind{fleet.Advance}, waiting: "the old fleet: 1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "another fleet, a node does not know it", state: with(ready(7), changing),
			nodes: []recovery.Node{told, voter(7), lost()},
			want:  []fleet.Kind{fleet.Advance}, waiting: "the old fleet: 1 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "another fleet, leases live", state: with(ready(7), changing), nodes: []recovery.Node{told, told, lost()},
			waiting: "leases of the old fleet to end, 1m0s left"},
		{name: "another fleet, now", state: with(ready(7), changing, func(s *machine.Efficiency) { s.NextNow = true }),
			nodes: []recovery.Node{told, told, lost()}, want: []fleet.Kind{fleet.FinishFleet}},
		{name: "another fleet, now, in a log that was restored", state: with(ready(7), restored, changing,
			func(s *machine.Efficiency) { s.NextNow, s.ReconcileVersion = true, 7 }),
			nodes: []recovery.Node{told, told, lost()}, want: []fleet.Kind{fleet.FinishReconcile},
			waiting: "2 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "another fleet, the old one lost", state: with(ready(7), func(s *machine.Efficiency) {
			s.Next, s.NextVersion, s.NextForce, s.NextNow = other, 7, true, true
		}),
			nodes: []recovery.Node{lost(), lost(), lost()}, want: []fleet.Kind{fleet.FinishFleet}},
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
	plan, nodes := fleet.NewPlan(), []recovery.Node{voter(7), voter(7), voter(7)}
	step := plan.Step(state, []recovery.Node{voter(7), voter(6), voter(6)}, start)
	require.Equal(t, []fleet.Kind{fleet.Advance, fleet.Advance}, kinds(step))
	met := start.Add(time.Hour)
	require.Empty(t, kinds(plan.Step(state, nodes, met)))
	require.Equal(t, "leases in efficiency mode to end, 1s left",
		plan.Step(state, nodes, met.Add(maxTTL-time.Millisecond)).Migrations["p/"])
	require.Equal(t, []fleet.Kind{fleet.FinishMigration}, kinds(plan.Step(state, nodes, met.Add(maxTTL))))
	require.Empty(t, kinds(fleet.NewPlan().Step(state, nodes, met.Add(maxTTL))), "a new leader does not know that time")

	state.Migrations[0].Version, state.Version = 9, 9 // aborted and started again
	require.NotContains(t, kinds(plan.Step(state, nodes, met.Add(maxTTL))), fleet.FinishMigration)
}

// A change of the fleet waits for the leases of the old fleet, by its own longest TTL.
func TestPlanWaitsForTheLeasesOfTheOldFleet(t *testing.T) {
	state := ready(7)
	state.Next, state.NextVersion = other, 7
	state.Next.MaxTTL = maxTTL / 4
	plan, nodes := fleet.NewPlan(), []recovery.Node{retired(7, "d:1"), retired(7, "d:1"), retired(7, "d:1")}
	require.Equal(t, "leases of the old fleet to end, 1m0s left", plan.Step(state, nodes, start).Waiting)
	require.Empty(t, kinds(plan.Step(state, nodes, start.Add(maxTTL-1))))
	require.Equal(t, []fleet.Kind{fleet.FinishFleet}, kinds(plan.Step(state, nodes, start.Add(maxTTL))))
}

// The log and the node say how far a recovery is, so any leader can take the next step.
func TestPlanRecovers(t *testing.T) {
	join := fleet.JoinNonce(5, "j")
	joined := func(join string, quarantine time.Duration) recovery.Node {
		n := empty()
		n.Joining, n.Quarantine = join, quarantine
		return n
	}
	assigned := func(s *machine.Efficiency) {
		s.Lives[0] = machine.Life{Name: recovery.LifeName("t", join), Pending: true, Floor: 3 * jump, Version: 7}
	}
	votes := voter(7)
	votes.Server, votes.Live.Join, votes.Live.Floor = "t", join, 3*jump
	rolledBack := voter(5)
	rolledBack.Live.Join = "i"
	for _, c := range []struct {
		name    string
		node    recovery.Node
		change  func(*machine.Efficiency)
		want    []fleet.Action
		waiting string
	}{
		{name: "empty", node: empty(), want: []fleet.Action{{Kind: fleet.Join, Server: "t"}}},
		{name: "in another life", node: rolledBack, want: []fleet.Action{{Kind: fleet.Advance, Server: "s"},
			{Kind: fleet.Join, Server: "s"}}},
		{name: "joined by a process without a service", node: joined("abc", 0),
			want: []fleet.Action{{Kind: fleet.Join, Server: "t"}}},
		{name: "joined before the log was restored", node: joined(fleet.JoinNonce(2, "j"), 0),
			want: []fleet.Action{{Kind: fleet.Join, Server: "t"}}},
		{name: "joined a while ago", node: func() recovery.Node {
			n := joined(join, maxTTL)
			n.Joined = time.Second
			return n
		}(),
			want:    []fleet.Action{{Kind: fleet.Rejoin, Server: "t", Join: join}},
			waiting: "quarantine of Redis node a:1, 1m0s left"},
		{name: "joined before its clock was set back", node: func() recovery.Node {
			n := joined(join, 5*maxTTL)
			n.Joined = -4 * maxTTL
			return n
		}(),
			want:    []fleet.Action{{Kind: fleet.Rejoin, Server: "t", Join: join}},
			waiting: "quarantine of Redis node a:1, 5m0s left"},
		{name: "in quarantine", node: joined(join, maxTTL), waiting: "quarantine of Redis node a:1, 1m0s left"},
		{name: "after the quarantine", node: joined(join, 0), want: []fleet.Action{{Kind: fleet.NameLife, Life: "t." + join,
			Version: 7}}},
		{name: "with a floor", node: joined(join, 0), change: assigned,
			want: []fleet.Action{{Kind: fleet.Initialise, Server: "t",
				Range: recovery.Range{Join: join, Version: 7, Floor: 3 * jump, Ceiling: 3 * jump, Quarantine: maxTTL}}}},
		{name: "with a floor, in a fleet that is replaced", node: joined(join, 0), change: func(s *machine.Efficiency) {
			assigned(s)
			s.Next, s.NextVersion = other, 7
		}, want: []fleet.Action{{Kind: fleet.Initialise, Server: "t", Range: recovery.Range{Join: join, Version: 7,
			Floor: 3 * jump, Ceiling: 3 * jump,
			Quarantine: maxTTL, Successor: "d:1"}}, {Kind: fleet.Advance, Node: 1, Server: "s"}, {Kind: fleet.Advance, Node: 2,
			Server: "s"}},
			waiting: "the old fleet: 0 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "lost again, with another life", node: joined(fleet.JoinNonce(6, "k"), 0), change: assigned,
			want: []fleet.Action{{Kind: fleet.NameLife, Life: "t.6-k", Version: 7}}},
		{name: "votes", node: votes, change: assigned, want: []fleet.Action{{Kind: fleet.FinishRecovery, Life: "t." + join}}},
		{name: "rolled back with its memory", node: joined(join, 0), change: func(s *machine.Efficiency) {
			assigned(s)
			s.Lives[0].Floor, s.Lives[0].Pending = 0, false
		}, want: []fleet.Action{{Kind: fleet.Join, Server: "t"}}},
		{name: "an older set may grant", node: joined(join, 0), change: func(s *machine.Efficiency) {
			assigned(s)
			s.Open = []machine.Set{{Version: 6, Lives: []string{"s.j", "u.j", "v.j"}},
				{Version: 8, Lives: []string{"s.j", "u.j", "v.j"}}}
		}, waiting: "a quorum of the Redis nodes to have version 7 before node a:1 votes"},
		{name: "only later sets may grant", node: joined(join, 0), change: func(s *machine.Efficiency) {
			assigned(s)
			s.Open = []machine.Set{{Version: 7, Lives: []string{"", "s.j", "s.j"}}}
		}, want: []fleet.Action{{Kind: fleet.Initialise, Server: "t", Range: recovery.Range{Join: join, Version: 7,
			Floor: 3 * jump, Ceiling: 3 * jump, Quarantine: maxTTL}}}},
		{name: "before the mode is ready", node: joined(join, maxTTL), change: func(s *machine.Efficiency) {
			s.Ready = false
		},
			want: []fleet.Action{{Kind: fleet.NameLife, Life: "t." + join, Version: 7}, {Kind: fleet.FinishReconcile,
				Version: 7}}, waiting: "2 of 3 Redis nodes have the new version, 2 are needed"},
		{name: "before a restored log is ready", node: joined(join, maxTTL), change: func(s *machine.Efficiency) {
			s.Ready, s.Restored = false, true
		},
			want:    []fleet.Action{{Kind: fleet.FinishReconcile, Version: 7}},
			waiting: "2 of 3 Redis nodes have the new version, 2 are needed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := ready(7)
			if c.change != nil {
				c.change(&state)
			}
			step := fleet.NewPlan().Step(state, []recovery.Node{c.node, voter(7), voter(7)}, start)
			for i := range step.Actions {
				step.Actions[i].Goal = recovery.Goal{}
			}
			require.Equal(t, c.want, step.Actions)
			require.Equal(t, c.waiting, step.Waiting)
			require.True(t, step.Busy)
		})
	}
}

// Time closes a set of lives only if fewer than a quorum of them could be asked for some seconds: a single late answer
// is no reason.
func TestPlanWaitsBeforeTimeClosesASet(t *testing.T) {
	state := ready(7)
	state.Open = []machine.Set{{Version: 5, Lives: []string{"r.j", "s.j", "s.j"}},
		{Version: 6, Lives: []string{"r.j", "s.j", "s.j"}}}
	silent, answering := []recovery.Node{voter(7), lost(), lost()}, []recovery.Node{voter(7), voter(5), voter(5)}
	plan := fleet.NewPlan()
	closes := func(nodes []recovery.Node, after time.Duration) bool {
		for _, a := range plan.Step(state, nodes, start.Add(after)).Actions {
			if a.Kind == fleet.CloseSets {
				require.EqualValues(t, 7, a.Version)
				return true
			}
		}
		return false
	}
	require.False(t, closes(silent, 0))
	require.False(t, closes(silent, 4*time.Second))
	require.False(t, closes(answering, 5*time.Second))
	require.False(t, closes(silent, 6*time.Second), "the time starts again")
	require.False(t, closes(silent, 10*time.Minute), "the leader was paused")
	require.True(t, closes(silent, 10*time.Minute+time.Second))
	plan = fleet.NewPlan()
	for after := time.Duration(0); after < 5*time.Second; after += time.Second {
		require.False(t, closes(silent, after))
	}
	require.True(t, closes(silent, 5*time.Second))
	require.True(t, closes([]recovery.Node{voter(7), voter(7), voter(7)}, 6*time.Second), "a quorum refuses the version")
}

// The Plan closes sets with what they have granted, if that is known for each of them. A life that has ended does not
// report, and a late answer is worth a few looks.
func TestPlanClosesSetsWithWhatTheyGranted(t *testing.T) {
	state := ready(9)
	first, second := machine.Set{Version: 5, Lives: []string{"r.j", "s.j", "s.j"}},
		machine.Set{Version: 6, Lives: []string{"r.j", "q.j", "s.j"}}
	top := func(max fencing.Token) recovery.Node { n := voter(9); n.Live.Max = max; return n }
	ended := func(server string) recovery.Node { n := voter(9); n.FormerServer = server; return n }
	closes := func(plan *fleet.Plan, nodes ...recovery.Node) *fleet.Action {
		for _, a := range plan.Step(state, nodes, start).Actions {
			if a.Kind == fleet.CloseSets {
				return &a
			}
		}
		return nil
	}
	state.Open = []machine.Set{first}
	require.Equal(t, &fleet.Action{Kind: fleet.CloseSets, Version: 6, Granted: 8}, closes(fleet.NewPlan(), ended("r"),
		top(8), top(7)))
	plan := fleet.NewPlan()
	require.Nil(t, closes(plan, ended("r"), top(8), lost()), "the third one may report")
	require.Nil(t, closes(plan, ended("r"), top(8), lost()))
	require.Equal(t, &fleet.Action{Kind: fleet.CloseSets, Version: 6}, closes(plan, ended("r"), top(8), lost()))
	state.Open = []machine.Set{first, second}
	unknown := []recovery.Node{ended("r"), ended("q"), top(7)} // of the second set only one is left
	plan = fleet.NewPlan()
	require.Equal(t, &fleet.Action{Kind: fleet.CloseSets, Version: 6, Granted: 7}, closes(plan, unknown...),
		"the first one is known")
	closes(plan, unknown...)
	require.Equal(t, &fleet.Action{Kind: fleet.CloseSets, Version: 7}, closes(plan, unknown...),
		"nobody knows what the second one has granted")
}

// The Plan raises the ceiling long before a node reaches it.
func TestPlanRaisesTheCeiling(t *testing.T) {
	busy := voter(7)
	busy.Live.Max = 3*jump - jump/2 + 1
	step := fleet.NewPlan().Step(ready(7), []recovery.Node{busy, voter(7), voter(7)}, start)
	require.Equal(t, []fleet.Action{{Kind: fleet.RaiseCeiling, Ceiling: 4 * jump}}, step.Actions)
}
