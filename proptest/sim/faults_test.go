package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/fleet"
)

// counted runs a small plan with these faults and returns how many were counted.
func counted(t *testing.T, setting Setting, nodes int, faults ...Fault) int {
	t.Helper()
	p := Plan{Seed: 1, Setting: setting, Nodes: nodes, Clients: 2, Locks: 1, TTL: time.Second,
		Think: 500 * time.Millisecond, Writes: 4,
		Work: 20 * time.Millisecond, Latency: time.Millisecond, Length: faults[len(faults)-1].At + 5*time.Second,
		Faults: faults}
	if setting == Service {
		p.Redises = 4
	}
	result := Run(p)
	require.Empty(t, result.Bad)
	return result.Report.Injected()
}

func TestEveryKindOfFaultIsCounted(t *testing.T) {
	for kind := range faultKinds {
		for setting := range settings {
			f := Fault{Kind: kind, At: 5 * time.Second, For: 3 * time.Second, Size: 5, Target: 1, Other: 4, Step: AboutToWrite}
			faults, want := []Fault{f}, 1
			switch {
			case kind >= Depose && setting == Standalone || (kind >= MoveLocks || kind == Misconfigure) &&
				setting == Correctness: // nothing to inject it into
				want = 0
			case kind == RestoreBackup: // there must be a backup
				faults[0].At = time.Minute
			case kind == ChangeFleet: // to another fleet
				faults[0].Other = 1
			case kind == AbortMigration, kind == CrashAtAction: // there must be a migration: it waits for leases to expire
				begin := Fault{Kind: MoveLocks, At: f.At - 100*time.Millisecond, Size: 4}
				faults[0].Size = int(fleet.FinishMigration)
				faults, want = append([]Fault{begin}, faults...), 2
			}
			require.Equal(t, want, counted(t, setting, 3, faults...), "%s, %s", kind, setting)
		}
	}
}

func TestFaultsWithoutEffectAreNotCounted(t *testing.T) {
	// The processes of a plan with three nodes, by number: nodes, storage, clients.
	const storage, first, second = 3, 4, 5
	at := func(seconds int, kind FaultKind, change ...func(*Fault)) Fault {
		f := Fault{Kind: kind, At: time.Duration(seconds) * time.Second, For: 20 * time.Second, Size: 5, Target: 1,
			Other: first}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	between := func(from, to int) func(*Fault) { return func(f *Fault) { f.Target, f.Other = from, to } }
	size := func(n int) func(*Fault) { return func(f *Fault) { f.Size = n } }
	for name, c := range map[string]struct {
		setting Setting
		nodes   int
		faults  []Fault
		want    int
	}{
		"crash of a client that is down": {Correctness, 3, []Fault{at(5, CrashClient), at(6, CrashClient)}, 1},
		"pause of a client that is paused": {Correctness, 3, []Fault{at(5, PauseClient), at(6, PauseClient),
			at(7, SuspendClient)}, 1},
		"crash of a node that is down": {Standalone, 3, []Fault{at(5, CrashNode), at(6, CrashNode),
			at(7, EmptyNode)}, 1},
		"drift of a drifting clock": {Standalone, 3, []Fault{at(5, DriftNode, size(50_000)),
			at(6, DriftNode, size(300_000))}, 1},
		"drift of a stopped clock": {Correctness, 3,
			[]Fault{at(5, StopClient), at(6, DriftClient, size(50_000))}, 1},
		"stop of a stopped clock": {Correctness, 3, []Fault{at(5, StopNode), at(6, StopNode)}, 1},
		"jump of a clock by zero": {Correctness, 3, []Fault{at(5, JumpClient, size(0)),
			at(6, JumpNode, size(0))}, 0},
		"clock jump of a process that is down": {Correctness, 3, []Fault{at(5, CrashClient), at(6, JumpClient)}, 1},
		"cut from a party to itself":           {Correctness, 3, []Fault{at(5, CutOneWay, between(first, first))}, 0},
		"cut between clients":                  {Correctness, 3, []Fault{at(5, CutOneWay, between(first, second))}, 0},
		"cut between a node and the storage":   {Correctness, 3, []Fault{at(5, CutOneWay, between(storage, 1))}, 0},
		"cut between nodes that never talk":    {Standalone, 3, []Fault{at(5, CutOneWay, between(0, 1))}, 0},
		"cut of a cut connection": {Standalone, 3, []Fault{at(5, Isolate), at(6, CutOneWay), at(7, Isolate)},
			1},
		"cut of a node that is down": {Standalone, 3, []Fault{at(5, CrashNode), at(6, Isolate)}, 1},
		"client cut off twice": {Standalone, 3, []Fault{at(5, CutClient), at(6, CutClient),
			at(7, CutStorage), at(8, CutStorage)}, 2},
		"split with an empty side": {Correctness, 3, []Fault{at(5, Split, size(0))}, 0},
		"loss of more than all messages": {Correctness, 3, []Fault{at(5, LoseMessages, size(59)),
			at(6, LoseMessages, size(59)), at(7, LoseMessages), at(8, DelayMessages)}, 2},
		"change of members of one node":      {Correctness, 1, []Fault{at(5, ChangeMembers), at(6, Depose)}, 1},
		"change of members, requested twice": {Correctness, 3, []Fault{at(5, ChangeMembers), at(6, ChangeMembers)}, 1},
		"restore without a backup":           {Correctness, 3, []Fault{at(0, RestoreBackup)}, 0},
		"change to the current fleet":        {Service, 3, []Fault{at(5, ChangeFleet, between(1, 0))}, 0},
		"abort without a migration":          {Service, 3, []Fault{at(5, AbortMigration)}, 0},
		"stale topology that stays stale":    {Service, 3, []Fault{at(5, StaleTopology), at(6, StaleTopology)}, 1},
		"crash at an action that never happens": {Service, 3, []Fault{at(20, CrashAtAction, size(int(fleet.FinishFleet)))},
			0},
		"deposed before there is a leader": {Correctness, 3, []Fault{at(0, Depose)}, 0},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, counted(t, c.setting, c.nodes, c.faults...)) })
	}
}
