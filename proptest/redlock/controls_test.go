package redlock

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// recovered is a state in which node 0 lost its state and got a new range.
func recovered(w *State) {
	w.Log.Ceiling = 3 + jump
	for n := range w.Nodes[:3] {
		w.Nodes[n].Servers[0].Ceiling = 3 + jump
	}
	at := &w.Nodes[0].Servers[0]
	at.Max, at.Floor = 3, 3
	at.Init = call{Join: 1, Version: 1, Fleet: 1, Floor: 3, Ceiling: 3 + jump}
}

// usedOne is a state in which all nodes have accepted token 1.
func usedOne(w *State) {
	for n := range w.Nodes[:3] {
		w.Nodes[n].Servers[0].Max = 1
	}
}

// oldBackup is a state with a backup that is five ranges old and has the lock in
// correctness mode.
func oldBackup(w *State) {
	w.Saved = register{Version: 1, Mode: correctness, Ceiling: 1, Fleet: 1, Ready: true}
	w.Left.Backups = 0
	w.Log.Version, w.Log.Ceiling = 5, 6*jump
	w.Topologies[0].Version = 5
	for n := range w.Nodes[:3] {
		at := &w.Nodes[n].Servers[0]
		at.Version, at.Max, at.Floor, at.Ceiling = 5, 5*jump, 5*jump, 6*jump
	}
}

// retired is a state with a backup that is five ranges and a change of the fleet old.
func retired(w *State) {
	w.Saved = register{Version: 1, Mode: efficiency, Ceiling: 1, Fleet: 1, Ready: true}
	w.Left.Backups, w.Top = 0, 5*jump+1
	w.Log = register{Version: 9, Mode: efficiency, Ceiling: 6 * jump, Fleet: 2, Ready: true}
	old, present := &w.Nodes[0], &w.Nodes[1]
	old.Log, old.Servers[0].Version, old.Servers[0].Successor = member{}, 2, 2
	present.Log.Life = lifeOf(0, 1)
	present.Servers[0] = server{Initialised: 1, Joins: 1,
		data: data{Version: 9, Fleet: 2, Max: 5*jump + 1, Floor: 5 * jump, Ceiling: 6 * jump}}
	w.Topologies[1], present.Topologies[1] = topology{9, 2}, lifeOf(0, 1)
}

// halfway: attempt A has the vote of node 0, gave up on node 2, and node 0 is lost.
var halfway = []event{{startAttempt, 0, 0, 0, 0}, {acquireArrives, 0, 0, 0, 0}, {acquireAnswered, 0, 0, 0, 0},
	{giveUp, 0, 2, 0, 0}, {nodeLost, 0, 0, 0, 0}}

// ended: attempt A is granted a token by nodes 0 and 1, and node 0 restarts.
var ended = []event{{startAttempt, 0, 0, 0, 0}, {acquireArrives, 0, 0, 0, 0}, {acquireAnswered, 0, 0, 0, 0},
	{acquireArrives, 0, 1, 0, 0}, {acquireAnswered, 0, 1, 0, 0},
	{nodeLost, 0, 0, uint8(all), 0}}

// The prefixes of searches in which addresses move. An attempt that asks node 2 has its answer.
var (
	// The address of node 0 moves, and the log names the new life.
	moved = []event{{addressMoves, 0, 0, 0, 0}, {joinNode, 0, 1, 0, 0}, {rangeAssigned, 0, 1, 0, 0}}
	// Attempt A starts under a topology. It asks node 2, and gives up on node 1.
	asks = func(topology uint8) []event {
		return []event{{advanceArrives, 2, 0, 0, 0}, {startAttempt, 0, 0, topology, 0}, {giveUp, 0, 1, 0, 0},
			{acquireArrives, 0, 2, 0, 0}, {acquireAnswered, 0, 2, 0, 0}}
	}
	started = after(moved, asks(1))
	// The new life votes, and A is granted a token by it and node 2.
	granted = []event{{initSent, 0, 1, 0, 0}, {initArrives, 0, 1, 0, 0}, {acquireArrives, 0, 0, 1, 0},
		{acquireAnswered, 0, 0, 0, 0}, {raiseArrives, 0, 2, 0, 0},
		{raiseAnswered, 0, 2, 0, 0}}
	closed = after(moved, []event{{advanceArrives, 1, 0, 0, 0}}, asks(1), []event{{setClosed, 0, 0, everyone, 0}}, granted)
	timed  = after(moved, asks(1), []event{{timeClosesSets, 0, 0, 0, 0}, {advanceArrives, 2, 0, 0, 0}}, granted)
	// The address of node 0 moves again while the init of the new life is in flight.
	movedTwice = after(moved, []event{{advanceArrives, 1, 0, 0, 0}, {advanceArrives, 2, 0, 0, 0},
		{setClosed, 0, 0, everyone, 0}, {initSent, 0, 1, 0, 0},
		{addressMoves, 0, 0, 0, 0}, {joinNode, 0, 2, 0, 0}, {rangeAssigned, 0, 2, 0, 0}}, asks(2))
	// The set of the first one is closed, although it does not vote yet, and A is granted a token by the second
	// one and node 2.
	unborn = []event{{setClosed, 0, 0, everyone, 0}, {advanceArrives, 2, 0, 0, 0}, {initSent, 0, 2, 0, 0},
		{initArrives, 0, 2, 0, 0}, {acquireArrives, 0, 0, 2, 0}, {acquireAnswered, 0, 0, 0, 0},
		{raiseArrives, 0, 2, 0, 0}, {raiseAnswered, 0, 2, 0, 0}}
	// The same as movedTwice before the set of the first life is closed.
	replacedTwice = after(moved, []event{{addressMoves, 0, 0, 0, 0}, {joinNode, 0, 2, 0, 0}, {rangeAssigned, 0, 2, 0, 0}},
		asks(2))
	// A voter is joined again, and its init is in flight when the address of node 2 moves. A call under the next version
	// reaches the voter.
	joinedAgain = []event{{joinNode, 0, 0, 0, 0}, {rangeAssigned, 0, 0, 0, 0}, {advanceArrives, 1, 0, 0, 0},
		{advanceArrives, 2, 0, 0, 0},
		{setClosed, 0, 0, everyone, 0}, {initSent, 0, 0, 0, 0}, {addressMoves, 2, 0, 0, 0}, {joinNode, 2, 1, 0, 0},
		{rangeAssigned, 2, 1, 0, 0},
		{otherCall, 0, 0, 0, 0}, {advanceArrives, 1, 0, 0, 0}, {startAttempt, 0, 0, 2, 0}, {giveUp, 0, 0, 0, 0},
		{acquireArrives, 0, 1, 0, 0}, {acquireAnswered, 0, 1, 0, 0}}
	// The new life of node 2 votes, A is granted a token by it and node 1, and the init of the voter arrives.
	late = []event{{setClosed, 0, 0, everyone, 0}, {advanceArrives, 1, 0, 0, 0}, {initSent, 2, 1, 0, 0},
		{initArrives, 2, 1, 0, 0}, {acquireArrives, 0, 2, 1, 0}, {acquireAnswered, 0, 2, 0, 0},
		{raiseArrives, 0, 1, 0, 0}, {raiseAnswered, 0, 1, 0, 0}, {initArrives, 0, 0, 0, 0}}
)

func after(events ...[]event) []event { return slices.Concat(events...) }

// voted: attempt A has the vote of node 0, and attempt B starts.
var voted = []event{{startAttempt, 0, 0, 0, 0}, {acquireArrives, 0, 0, 0, 0}, {acquireAnswered, 0, 0, 0, 0},
	{startAttempt, 1, 0, 0, 0}}

// forgotten: the address of node 0 moves, node 2 restarts, and the log is restored. The new servers become
// voters, and A is granted a token by them.
var forgotten = []event{{backup, 0, 0, 0, 0}, {addressMoves, 0, 0, 0, 0}, {nodeLost, 2, 0, uint8(all), 0},
	{restored, 0, 0, 0, 0},
	{nodeReportsForReconcile, 1, 0, 0, 0}, {nodeReportsForReconcile, 2, 0, 0, 0}, {reconciled, 0, 0, 0, 0},
	{joinNode, 0, 1, 0, 0}, {rangeAssigned, 0, 1, 0, 0}, {initSent, 0, 1, 0, 0}, {initArrives, 0, 1, 0, 0},
	{joinNode, 2, 1, 0, 0}, {rangeAssigned, 2, 1, 0, 0}, {advanceArrives, 0, 1, 0, 0}, {initSent, 2, 1, 0, 0},
	{initArrives, 2, 1, 0, 0},
	{nodeReports, 0, 1, 0, 0}, {nodeReports, 2, 1, 0, 0}, {changeFinished, 0, 0, 0, 0},
	{startAttempt, 0, 0, 1, 0}, {giveUp, 0, 1, 0, 0}, {acquireArrives, 0, 2, 1, 0}, {acquireAnswered, 0, 2, 0, 0},
	{acquireArrives, 0, 0, 1, 0}, {acquireAnswered, 0, 0, 0, 0}}

// ledBack: the address of node 0 leads to a new server, back to the old one, and to the new one again.
var ledBack = after(moved[:2], []event{{addressMovesBack, 0, 0, 0, 0}, {quarantineEnds, 0, 1, 0, 0},
	{addressMovesBack, 0, 1, 0, 0}})

// reserved: nodes 1 and 2 report for the recovery of the new server of node 0, and store its floor.
var reserved = []event{{reportTo, 0, 1, 1, 0}, {reportTo, 0, 1, 2, 0}, {reserveAt, 0, 1, 1, 0}, {reserveAt, 0, 1, 2, 0}}

// leased: attempt A is granted token 1 by nodes 0 and 1, and leased5 by nodes 0, 1 and 2 of five.
var (
	leased = []event{{startAttempt, 0, 0, 0, 0}, {acquireArrives, 0, 0, 0, 0}, {acquireArrives, 0, 1, 0, 0},
		{acquireArrives, 0, 2, 0, 0},
		{acquireAnswered, 0, 0, 0, 0}, {acquireAnswered, 0, 1, 0, 0}}
	leased5 = after(leased, []event{{acquireAnswered, 0, 2, 0, 0}})
)

// controls are the rules of the protocol, each with bounds in which a search without the
// rule finds a violation.
var controls = []Bounds{
	{Name: "the largest counter is granted without being written back", Broken: NoWriteBack, Nodes: 3, Attempts: 2,
		Mode: efficiency, Ceiling: 8, Fail: true},
	{Name: "a release goes only to nodes that answered", Broken: ReleaseAcceptedOnly, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 8, Fail: true, QuorumFirst: true},
	{Name: "a release refuses no late copies", Broken: NoLateCopies, Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 8,
		Fail: true, QuorumFirst: true},
	{Name: "an emptied node votes from zero", Broken: EmptyFromZero, Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 8,
		Losses: 1},
	{Name: "an emptied node starts from what the others have", Broken: EmptyFromOthers, Prefix: after(halfway, moved[1:]),
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 8, Losses: 1, Ranges: 1},
	{Name: "init does not compare the join nonce", Broken: InitWithoutJoin, Nodes: 1, Attempts: 2, Mode: efficiency,
		Ceiling: 3, Idle: true, Start: recovered},
	{Name: "a join nonce is reused", Broken: JoinNonceTwice, Nodes: 1, Attempts: 2, Mode: efficiency, Ceiling: 3,
		Idle: true, Late: true, Start: recovered},
	{Name: "a floor comes from the lives that are left", Prefix: ended, Broken: EndedLivesReport, Nodes: 3, Attempts: 2,
		Mode: efficiency, Ceiling: 3, Losses: 1, Former: true, Ranges: 1, Start: usedOne},
	{Name: "a migration to correctness does not advance the nodes", Broken: MoveWithoutPrepare, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1},
	{Name: "a migration to efficiency does not advance the nodes", Broken: MoveWithoutPrepare, Nodes: 3, Attempts: 1,
		Mode: correctness, Ceiling: 3, Moves: 1, Grants: 1},
	{Name: "the floor is on fewer nodes than a quorum", Broken: FloorOnAFew, Nodes: 3, Attempts: 1, Mode: correctness,
		Ceiling: 3, Moves: 1, Grants: 1},
	{Name: "lastToken is not raised to what was granted", Broken: LastTokenBehind, Nodes: 3, Attempts: 1, Mode: efficiency,
		Ceiling: 3, Moves: 1, Grants: 1},
	{Name: "nodes have no ceiling", Prefix: ended, Broken: NoCeiling, Nodes: 3, Attempts: 2, Mode: efficiency,
		Ceiling: jump, Losses: 1, Former: true, Ranges: 1, Time: true, Start: func(w *State) {
			for n := range w.Nodes[:3] {
				w.Nodes[n].Servers[0].Max = jump
			}
		}},
	{Name: "raise exceeds the ceiling, and the log is restored", Broken: RaisePastCeiling, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 1, Grants: 1, Restores: 1, Start: func(w *State) {
			oldBackup(w)
			for n := range 2 { // the others are in their initial state
				at := &w.Nodes[n+1].Servers[0]
				at.Max, at.Floor, at.Ceiling = 0, 0, 1
			}
		}},
	{Name: "a newer version is used with older policies", Broken: NewVersionOldPolicies, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1},
	{Name: "standalone recovery does not jump", Prefix: halfway, Broken: NoJump, Nodes: 3, Attempts: 2, Standalone: true,
		Losses: 1, Fail: true},
	{Name: "standalone recovery does not reserve its floor", Prefix: halfway, Broken: NoReserve, Nodes: 3, Attempts: 2,
		Standalone: true, Losses: 1, Fail: true, Start: func(w *State) {
			w.Nodes[0].Servers[0].Max, w.Nodes[0].Servers[0].Floor = jump, jump // recovered before
		}},
	{Name: "evidence is older than the last recovery", Broken: OldEvidence, Nodes: 1, Attempts: 2, Standalone: true,
		Former: true, Losses: 2},
	{Name: "nodes vote for any fleet", Broken: OverlappingFleets, Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 8,
		Fleets: []uint8{0b111, 0b001}, Start: func(w *State) {
			w.Topologies[1] = topology{1, 2} // a process with another fleet
			w.Nodes[0].Topologies[1] = lifeOf(0, 1)
		}},
	{Name: "a fleet is served while it changes", Broken: FleetServedWhileChanging, Nodes: 2, Attempts: 2, Mode: efficiency,
		Ceiling: 3, Fleets: []uint8{0b01, 0b10}, Changes: 1, Ranges: 1},
	{Name: "a fleet that is set again continues from its old floor", Broken: FleetFloorBehind, Nodes: 2, Attempts: 2,
		Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b01, 0b10}, Changes: 2, Ranges: 2, Raise: true},
	{Name: "a restored log reuses a version", Broken: RestoreVersionBehind, Nodes: 3, Attempts: 1, Mode: correctness,
		Ceiling: 3, Moves: 1, Grants: 1, Restores: 1},
	{Name: "a log that was restored twice reuses a version", Broken: ReconcileVersionBehind, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 3, Grants: 1, Restores: 1, Start: func(w *State) {
			w.Saved = register{Version: 1, Mode: correctness, Ceiling: 3, Fleet: 1, Ready: true}
			w.Left.Backups = 0
			w.Log.Version, w.Topologies[0].Version = 5+jump, 5+jump // of the previously restored log
			for n := range w.Nodes[:3] {
				w.Nodes[n].Servers[0].Version = 4 + jump
			}
		}},
	{Name: "a restored log grants in correctness mode before it has reconciled", Broken: RestoreServesCorrectness,
		Nodes: 3, Attempts: 1, Mode: correctness, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1},
	{Name: "a restored log assigns ranges before it has reconciled", Broken: RestoreRecoversFirst, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 1, Ranges: 2, Start: func(w *State) {
			oldBackup(w)
			w.Top = 5*jump + 1
			w.Log = register{Version: 1 + jump, Mode: efficiency, Ceiling: 1, Last: 1 + jump, Fleet: 1, Restored: true}
			for n := range w.Nodes[:3] {
				w.Nodes[n].Log = member{}
			}
			w.Nodes[0].Servers[0], w.Nodes[1].Servers[0] = server{}, server{}
		}},
	{Name: "attempts go to addresses instead of lives", Broken: AttemptsByAddress, Prefix: closed, Nodes: 3, Attempts: 2,
		Mode: efficiency, Ceiling: 3, Ranges: 1, Replaced: 1},
	{Name: "an init does not wait for the old lives", Broken: InitBeforeClosing, Prefix: started, Nodes: 3, Attempts: 2,
		Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 1},
	{Name: "the new life counts among those that have the version", Broken: NewLifeCounts, Prefix: started, Nodes: 3,
		Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 1},
	{Name: "a new life starts from the largest counter that it hears of", Broken: EmptyFromOthers,
		Prefix: after(voted[:3], []event{{giveUp, 0, 2, 0, 0}}, moved), Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 8,
		Replaced: 1, Ranges: 1},
	{Name: "only the last set of lives is closed, and a life that does not vote yet counts as refusing",
		Broken: CloseLastSet, Prefix: replacedTwice, Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 2,
		Ranges: 2},
	{Name: "a life that does not vote yet counts as refusing", Broken: UnbornRefuses, Prefix: after(movedTwice, unborn),
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 2, Ranges: 2},
	{Name: "a server that votes in another life counts as refusing, and init lowers its version", Broken: OtherLifeRefuses,
		Prefix: after(joinedAgain, late), Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 2,
		Late: true, Others: true},
	{Name: "time closes a set while a process uses an old connection", Broken: TimeWithoutChecks, Prefix: timed, Nodes: 3,
		Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 1, Time: true},
	{Name: "an address moves back after time closed a set", Broken: BackAfterTime, Prefix: timed, Nodes: 3, Attempts: 2,
		Mode: efficiency, Ceiling: 3, Replaced: 1, Back: 1, Ranges: 1, Time: true},
	{Name: "a server starts with a copy of the data of a living one", Broken: CopiedData, Prefix: started, Nodes: 3,
		Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Ranges: 1},
	{Name: "standalone recovery does not wait for old connections", Broken: NoQuarantine, Prefix: after(voted, moved[:2],
		reserved, []event{{initArrives, 0, 1, 0, 0}}), Nodes: 3, Attempts: 2, Standalone: true, Replaced: 1},
	{Name: "standalone recovery chooses its floor before the quarantine ends", Broken: FloorBeforeQuarantine,
		Prefix: after(voted, moved[:2], reserved), Nodes: 3, Attempts: 2, Standalone: true, Replaced: 1},
	{Name: "the quarantine counts from the first join, and an address leads back to the server",
		Broken: QuarantineFromFirstJoin, Prefix: after(voted, ledBack, reserved),
		Nodes: 3, Attempts: 2, Standalone: true, Replaced: 1, Back: 2},
	{Name: "standalone, an address leads back to a voter after another one has voted", Broken: BackAfterTime,
		Prefix: after(moved[:2], []event{{quarantineEnds, 0, 1, 0, 0}}, reserved, []event{{initArrives, 0, 1, 0, 0},
			{startAttempt, 0, 0, 0, 0}, {giveUp, 0, 1, 0, 0}}),
		Nodes: 3, Attempts: 2, Standalone: true, Replaced: 1, Back: 1, Fail: true},
	{Name: "nodes of a retired fleet are evidence", Broken: RetiredEvidence, Nodes: 2, Attempts: 1, Mode: efficiency,
		Ceiling: 1, Fleets: []uint8{0b01, 0b10}, Restores: 1, Start: retired},
	{Name: "a restored log does not close the sets that it has forgotten", Broken: ForgottenSets, Prefix: forgotten,
		Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Replaced: 1, Losses: 1, Former: true, Restores: 1, Ranges: 2},
	{Name: "a restarted node never takes a lease back", Prefix: leased, Broken: NoTakeBack, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 3,
		Losses: 1, Ranges: 1, Leases: true, Maintenance: true, Time: true},
	{Name: "a node takes a lease back with its token as the counter", Broken: TakeBackWithoutCounter, Nodes: 3,
		Attempts: 2, Mode: efficiency, Ceiling: 8,
		Renew: true, Start: func(w *State) {
			// 2 was granted after A, and the records were dropped.
			w.Attempts[0], w.Top = attempt{Started: true, Version: 1, Fleet: 1, Outcome: quorum.Granted, Token: 1}, 2
			for n := range w.Nodes[:3] {
				w.Nodes[n].Servers[0].Max = 2
			}
		}},
	{Name: "nodes keep the token that they accepted", Prefix: leased, Broken: GrantedTokenUnknown, Nodes: 3, Attempts: 1,
		Mode: efficiency, Ceiling: 3,
		Losses: 1, Ranges: 1, Leases: true, Time: true},
	{Name: "a node remembers the name of one ended attempt", Prefix: leased, Broken: EndingsByName, Nodes: 3, Attempts: 2,
		Mode: efficiency, Ceiling: 4,
		Breaks: 1, Leases: true},
	{Name: "only the nodes that hold the lock remember a break", Prefix: leased, Broken: EndingsWhereHeld, Nodes: 3,
		Attempts: 1, Mode: efficiency, Ceiling: 4,
		Losses: 1, Ranges: 1, Breaks: 1, Leases: true},
	{Name: "a node votes before its quarantine has ended", Prefix: leased, Broken: VoteWithoutQuarantine, Nodes: 3,
		Attempts: 1, Mode: efficiency, Ceiling: 4,
		Losses: 1, Ranges: 1, Breaks: 1, Leases: true},
	{Name: "a break is confirmed by a life that does not vote", Prefix: after(leased, moved), Broken: BreakWithoutVotes,
		Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 4, Replaced: 1, Ranges: 1, Breaks: 1, Leases: true},
	{Name: "a break is sent once", Prefix: leased, Broken: BreakInOneRound, Nodes: 3, Attempts: 1, Mode: efficiency,
		Ceiling: 4, Losses: 1, Ranges: 1, Breaks: 1, Leases: true},
	{Name: "a break is confirmed by a server that has lost its address", Prefix: leased, Broken: BreakWithoutCheck,
		Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 4, Replaced: 1, Ranges: 1, Breaks: 1, Leases: true},
	{Name: "standalone, a break is confirmed by a server that has lost its address", Prefix: leased,
		Broken: BreakWithoutCheck, Nodes: 3, Attempts: 1, Standalone: true, Replaced: 1, Breaks: 1, Leases: true},
	{Name: "an address leads back to a voter after the quarantine of another server", Prefix: leased,
		Broken: BackAfterQuarantine, Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 4, Replaced: 1, Back: 1, Ranges: 1,
		Breaks: 1, Leases: true},
	{Name: "a restored log does not reconcile", Broken: RestoreWithoutReconcile, Nodes: 3, Attempts: 1, Mode: efficiency,
		Ceiling: 1, Grants: 1, Restores: 1, Start: oldBackup},
}

// TestEveryRuleIsNeeded disables one rule at a time. The search must find a violation, and
// none with the rule.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, b := range controls {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			s := NewSearch(b)
			s.Most = 3_000_000
			if raced {
				s.Most = 8_000
			}
			err := s.Run()
			if raced && err == errMost { // a run without the race detector searches further
				return
			}
			var v Violation
			require.ErrorAs(t, err, &v, "no violation in %d states", s.Visited)
			t.Logf("visited %d: %v", s.Visited, err)

			if slices.Contains([]Shortcut{NoReserve, UnbornRefuses, OtherLifeRefuses, ForgottenSets, NoQuarantine,
				FloorBeforeQuarantine, QuarantineFromFirstJoin}, b.Broken) {
				return // its initial state is unreachable with the rule
			}
			b.Broken = Sound
			with := NewSearch(b)
			with.Most = 2*s.Visited + 10_000
			if err := with.Run(); err != errMost {
				require.NoError(t, err, "with the rule")
			}
		})
	}
}
