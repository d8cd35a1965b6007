package redlock

// Bounds limit a search: the numbers of nodes, attempts and faults, and the kinds of
// events besides the messages of the attempts.
type Bounds struct {
	Name     string
	Nodes    int
	Attempts int
	// Fleets has the members of each fleet, one bit per node. The first fleet is the
	// initial one. Nil stands for one fleet of all nodes.
	Fleets []uint8
	// Mode is the initial mode of the lock.
	Mode mode
	// Ceiling is the initial one, so low that attempts reach it.
	Ceiling token

	Losses   int // of a node's state, by a restart of its server
	Replaced int // addresses that move to a new, empty server while the old one lives on
	Back     int // addresses that move back to a server that they left; to a voter, before time closes a set
	Ranges   int // assigned by the log, including raises of its ceiling
	Moves    int // migrations of the lock to the other mode
	Aborts   int
	Changes  int // of the fleet
	Grants   int // in correctness mode
	Restores int // of the log, from a backup of any earlier moment
	Breaks   int // of granted attempts; with Leases

	Renew  bool // granted attempts renew and may take a lock back
	Leases bool // granted attempts are renewed on a quorum, released, broken, and expire
	// Maintenance restarts or replaces one node at a time while the first attempt, which is granted, is renewed.
	Maintenance bool
	// QuorumFirst: attempts ask a quorum of the nodes first, and end with the releases that quorum.Attempt decides.
	QuorumFirst bool
	Fail        bool // clients time out on nodes
	Copies      bool // acquires may arrive twice
	Idle        bool // idle records may be dropped
	Late        bool // messages of the keeper under the previous version may arrive, and late joins
	Time        bool // the leader may fail to reach nodes, so that time closes sets of lives
	Former      bool // a lost node may keep old data
	Raise       bool // the log raises its ceiling when a node approaches it
	Others      bool // calls for other locks may bring the log's version to nodes
	// Standalone removes the log: nodes recover from the reports of each other.
	Standalone bool

	// Start changes the initial state.
	Start func(*State)
	// Prefix has events before the search.
	Prefix []event
	// Broken disables one rule.
	Broken Shortcut
}

// Shortcut is a rule that a test disables, to see that the search notices.
type Shortcut uint8

// The shortcuts.
const (
	Sound Shortcut = iota
	NoWriteBack
	EmptyFromZero
	EmptyFromOthers
	InitWithoutJoin
	JoinNonceTwice
	EndedLivesReport
	MoveWithoutPrepare
	FloorOnAFew
	LastTokenBehind
	NoCeiling
	RaisePastCeiling
	NewVersionOldPolicies
	NoJump
	NoReserve
	OldEvidence
	OverlappingFleets
	FleetServedWhileChanging
	FleetFloorBehind
	RestoreVersionBehind
	ReconcileVersionBehind
	RestoreServesCorrectness
	RestoreRecoversFirst
	RestoreWithoutReconcile
	AttemptsByAddress
	InitBeforeClosing
	NewLifeCounts
	CloseLastSet
	UnbornRefuses
	OtherLifeRefuses
	TimeWithoutChecks
	BackAfterTime
	CopiedData
	NoQuarantine
	FloorBeforeQuarantine
	QuarantineFromFirstJoin
	RetiredEvidence
	ForgottenSets
	NoTakeBack
	TakeBackWithoutCounter
	GrantedTokenUnknown
	EndingsByName
	EndingsWhereHeld
	VoteWithoutQuarantine
	BreakWithoutVotes
	BackAfterQuarantine
	BreakInOneRound
	BreakWithoutCheck
	ReleaseAcceptedOnly
	NoLateCopies
)

// members returns the nodes of a fleet, which is counted from 1.
func (b *Bounds) members(fleet uint8) uint8 { return b.Fleets[int(fleet-1)%len(b.Fleets)] }

// First returns the initial state: all nodes of the first fleet vote.
func (b *Bounds) First() State {
	w := State{Left: budget{
		Losses: uint8(b.Losses), Replaced: uint8(b.Replaced), Back: uint8(b.Back), Ranges: uint8(b.Ranges),
		Moves: uint8(b.Moves), Aborts: uint8(b.Aborts), Fleets: uint8(b.Changes),
		Grants: uint8(b.Grants), Restores: uint8(b.Restores), Backups: uint8(min(1, b.Restores)),
		Breaks: uint8(b.Breaks),
	}}
	first := server{data: data{Version: 1, Fleet: 1, Ceiling: b.Ceiling}, Initialised: 1, Joins: 1}
	if b.Standalone {
		first.Ceiling = most
		w.Topologies[0] = topology{Version: 1, Fleet: 1}
	} else {
		w.Log = register{Version: 1, Mode: b.Mode, Ceiling: b.Ceiling, Fleet: 1, Ready: true}
		if b.Mode == efficiency {
			w.Topologies[0] = topology{Version: 1, Fleet: 1}
		}
	}
	for n := range b.Nodes {
		at := &w.Nodes[n]
		at.Count = 1
		if b.members(1)>>n&1 == 0 {
			continue
		}
		at.Servers[0] = first
		if !b.Standalone {
			at.Log.Life = lifeOf(0, 1)
		}
		if w.Topologies[0].Version != 0 {
			at.Topologies[0] = lifeOf(0, 1)
		}
	}
	if b.Start != nil {
		b.Start(&w)
	}
	return w
}
