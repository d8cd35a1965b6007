package redlock

// Bounds say what a search covers: how many of everything, and which events can
// happen beside the messages of the attempts.
type Bounds struct {
	Name     string
	Nodes    int
	Attempts int
	// Fleets are the members of each fleet, one bit a node; the first is the one
	// to start with. Nil: one fleet of all nodes.
	Fleets []uint8
	// Mode is the lock's first one.
	Mode mode
	// Ceiling is the first one, a few tokens: attempts reach it.
	Ceiling token

	Losses   int // of a node's state
	Ranges   int // that the log assigns, and raises of its ceiling
	Moves    int // of the lock, to the other mode
	Aborts   int
	Changes  int // of the fleet
	Grants   int // in correctness mode
	Restores int // of the log to a backup that was taken at any moment

	Renew  bool // granted attempts renew, and take back what they lost
	Fail   bool // clients give up on nodes
	Copies bool // acquires arrive twice
	Idle   bool // records of unused locks are dropped
	Late   bool // the keeper's messages of the log's former version arrive, too
	Former bool // a lost node may leave evidence
	Raise  bool // the log raises its ceiling when a node comes near it
	Others bool // calls for other locks bring the log's version to nodes
	// Standalone: there is no log; nodes recover from reports of each other.
	Standalone bool

	// Start changes the first state: what has happened before.
	Start func(*State)
	// Prefix happens before the search begins.
	Prefix []event
	// Broken takes one rule out.
	Broken Shortcut
}

// Shortcut is a rule that is left out, to see that the search notices.
type Shortcut uint8

// The shortcuts.
const (
	Sound Shortcut = iota
	NoWriteBack
	EmptyFromZero
	EmptyFromOthers
	InitOldVersion
	InitWithoutJoin
	JoinNonceTwice
	RangeTwice
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
)

func (b *Bounds) fleets() []uint8 {
	if b.Fleets != nil {
		return b.Fleets
	}
	return []uint8{1<<b.Nodes - 1}
}

// members returns the nodes of a fleet, which is counted from 1.
func (b *Bounds) members(fleet uint8) uint8 {
	all := b.fleets()
	return all[int(fleet-1)%len(all)]
}

// First returns the first state: all nodes of the first fleet vote.
func (b *Bounds) First() State {
	w := State{Left: budget{
		Losses: uint8(b.Losses), Ranges: uint8(b.Ranges), Moves: uint8(b.Moves), Aborts: uint8(b.Aborts), Fleets: uint8(b.Changes),
		Grants: uint8(b.Grants), Restores: uint8(b.Restores), Backups: uint8(min(1, b.Restores)),
	}}
	first := node{Version: 1, Fleet: 1, Ceiling: b.Ceiling}
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
		if b.members(1)>>n&1 == 1 {
			w.Nodes[n] = first
		}
	}
	if b.Start != nil {
		b.Start(&w)
	}
	return w
}
