package recovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// StandaloneVersion is the version of a fleet without a service.
const StandaloneVersion = 1

// StandaloneFleet returns the fingerprint of a fleet without a service. It also depends on MaxTTL, because otherwise
// the shortest quarantine of all processes would count. It differs from the fingerprint of a service with the same
// nodes, whose log assigns the tokens.
func StandaloneFleet(f engine.Fleet) string {
	f.Addresses = append(slices.Clone(f.Addresses), "standalone "+f.MaxTTL.String())
	return f.Fingerprint()
}

// Why a node without a service does not vote. Match with errors.Is.
var (
	// ErrNoState: fewer than a quorum of the nodes can report which tokens were granted, so no token would be safe.
	ErrNoState = engine.ErrNoState
	// ErrFleet: a node votes in another fleet, or did before its server was restarted.
	ErrFleet = errors.New("node belongs to another fleet: to a service, or to processes with other addresses " +
		"or another MaxTTL")
	// ErrService: a service has used the nodes, and its log knows which tokens they may accept.
	ErrService = errors.New("a service assigns the tokens of the nodes")
	// ErrNearEnd: the tokens of the nodes are near the largest one.
	ErrNearEnd = errors.New("its tokens are near 2^53; start a new namespace")
)

// Kind is the kind of an Action.
type Kind uint8

const (
	// Join puts the join nonce Join on the node, or repeats it.
	Join Kind = iota
	// Reserve stores Floor on the node, from which another node is about to start.
	Reserve
	// Save has the node write Floor to disk: a restart from older data could bring an older floor back. Without a Floor
	// it asks again whether this process may do that.
	Save
	// Initialise makes the node a voter, with Range.
	Initialise
)

// Action is one call to the run Server of a node. It may fail, or arrive late: the next step decides from the
// reports.
type Action struct {
	Kind   Kind
	Node   int
	Server string
	Join   string
	Floor  fencing.Token
	Range  Range
	// Vouched: a node without any state reserves Floor, too, because an operator vouches for it or no node has voted.
	Vouched bool
}

// Standalone decides how a process recovers empty nodes without a service. It remembers only what can be found out
// again: a new one may wait longer, but is as safe.
//
// Invariants:
//  1. the floor of a node is above everything that a quorum reports after the quarantine of the node. Until the
//     quarantine ends, another server that the address led to may still vote. If the other nodes moved to the new
//     floor before that, it could help to grant tokens above the floor, which the new server accepts again;
//  2. the floor is reserved and on disk on a quorum before the node votes: if the node is lost again, its next
//     floor must be above this one;
//  3. it keeps out of the recoveries of other fleets, and of nodes that a service has used;
//  4. tokens start at 1 only while all nodes report that none of them has ever voted, in the runs that had no state
//     when this process began. After a restart of its server, a node that reserved the floor may have voted. Each node
//     has the floor on its own disk before it votes, so all disks must be lost before the nodes look new again.
type Standalone struct {
	// Fleet is the fingerprint of the fleet.
	Fleet string
	// Quarantine is the time for which an empty node must not vote; 0 for new nodes without a history.
	Quarantine time.Duration
	// MaxTTL is the quarantine of a node that may have voted since this process began.
	MaxTTL time.Duration
	// Provided is a floor from an operator, which replaces the reports of a quorum; nil if there is none. It does not
	// apply to a node that loses its state after this process began: larger tokens may have been granted since.
	Provided *fencing.Token

	fresh      []string // the runs of all servers, if none had any state when the process began
	recoveries map[int]*nodeRecovery
	voted      map[int]bool // nodes that may have voted since this process began: lost later, they have a history
}

// nodeRecovery is the recovery of one run of a server.
type nodeRecovery struct {
	server, join string
	waited       bool // the quarantine was over at the previous step, so the present reports are new enough
	chosen       bool
	floor        fencing.Token // once it is chosen
	tried        bool          // to initialise it: it may have voted since
}

// Step decides what to do now, from the reports of all nodes. nonce returns a fresh join nonce. waiting has, for each
// empty node, what its recovery waits for. again says that a quarantine has just ended, and that the next step, with
// new reports, has more to do at once.
func (s *Standalone) Step(nodes []Node, nonce func() string) (actions []Action, waiting map[int]error, again bool) {
	if s.recoveries == nil {
		s.recoveries, s.voted = map[int]*nodeRecovery{}, map[int]bool{}
	}
	d := standaloneStep{Standalone: s, nodes: nodes, calls: map[int]Action{}}
	for _, n := range nodes {
		d.reports = append(d.reports, n.Report)
	}
	d.neverVoted = s.sameRuns(nodes) && NeverVoted(d.reports)
	waiting = map[int]error{}
	for i, n := range nodes {
		r := s.recoveries[i]
		s.voted[i] = s.voted[i] || n.Reached && n.Live != nil
		if n.Reached && r != nil && (r.server != n.Server || n.Live != nil) {
			s.voted[i] = s.voted[i] || r.tried
			delete(s.recoveries, i) // it votes, or the address leads to another server, and may lead back
		}
		if n.Reached && n.Live == nil {
			waiting[i] = d.recover(i, nonce)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(d.calls)) {
		d.actions = append(d.actions, d.calls[i])
	}
	return d.actions, waiting, d.again
}

// Begin looks for new nodes, in the first reports of a process. The caller knows that the nodes would remember a vote.
// If all were reached and none has any state, they are initialised at once, and tokens start at 1, while the same
// runs of the servers report that none has voted.
func (s *Standalone) Begin(reports []Report) {
	s.End()
	for _, r := range reports {
		if !r.Reached || r.Live != nil || r.Former != nil { // another process may be initialising them
			s.End()
			return
		}
		s.fresh = append(s.fresh, r.Server)
	}
}

// End makes the nodes count as used from now on.
func (s *Standalone) End() { s.fresh = nil }

// sameRuns reports whether the servers still run that had no state when the process began.
func (s *Standalone) sameRuns(nodes []Node) bool {
	return s.fresh != nil && slices.EqualFunc(s.fresh, nodes, func(run string, n Node) bool { return run == n.Server })
}

// standaloneStep is one call of Step.
type standaloneStep struct {
	*Standalone
	nodes      []Node
	reports    []Report
	neverVoted bool
	actions    []Action
	calls      map[int]Action // reservations and saves by node, which may be for several recoveries
	again      bool
}

// recover takes the next step for an empty node, and returns what it waits for.
func (d *standaloneStep) recover(i int, nonce func() string) error {
	n, r := &d.nodes[i], d.recoveries[i]
	if d.foreign() {
		return ErrFleet
	}
	// A join would lock out the processes that do reach a quorum. If the state is lost, it is needed: it locks out
	// processes that would take the nodes for new ones.
	if _, err := d.floor(i); errors.Is(err, ErrNoState) && !StateIsLost(d.Fleet, d.reports) {
		return errors.New("fewer than a quorum of the nodes say which tokens were granted")
	}
	if !StateIsLost(d.Fleet, d.reports) && d.mayNotSave() { // the same
		return errors.New("this process may not have a quorum of the nodes save a floor, and leaves that to others")
	}
	if r == nil || r.join != n.Joining {
		r = &nodeRecovery{server: n.Server, join: nonce()}
		d.recoveries[i] = r
	}
	d.actions = append(d.actions, Action{Kind: Join, Node: i, Server: n.Server, Join: r.join})
	if left := min(n.Quarantine, d.quarantine(i)); left > 0 || r.join != n.Joining || !r.waited {
		// If the quarantine has started again, the floor must be chosen again.
		r.waited, r.chosen = left == 0 && r.join == n.Joining, false
		d.again = d.again || r.waited
		return fmt.Errorf("the node is in quarantine for another %v", left.Round(time.Second))
	}
	if !r.chosen {
		floor, err := d.floor(i)
		if err != nil {
			return err
		}
		r.floor, r.chosen = floor, true
	}
	reserved, saved := d.store(r.floor)
	if saved < quorum(len(d.nodes)) {
		return fmt.Errorf("%d of %d Redis nodes have reserved the floor %d, %d of them on disk; %d are needed",
			reserved, len(d.nodes), r.floor, saved, quorum(len(d.nodes)))
	}
	if d.neverVoted && !(n.Saved && n.reserved(d.Fleet, r.floor)) {
		return fmt.Errorf("the node does not have the floor %d on its own disk yet", r.floor)
	}
	r.tried = true
	d.actions = append(d.actions, Action{Kind: Initialise, Node: i, Server: n.Server, Range: Range{Join: r.join,
		Version: StandaloneVersion, Floor: r.floor, Ceiling: fencing.MaxToken, Quarantine: d.quarantine(i)}})
	return fmt.Errorf("its range of tokens, above %d, is being assigned", r.floor)
}

// foreign reports whether the nodes belong to another fleet: one of them votes in it, or did, and no quorum knows what
// this fleet has granted. This process must not join them: its join nonce would keep out the processes of that fleet.
func (d *standaloneStep) foreign() bool {
	_, known := StandaloneFloor(ofFleet(d.Fleet, d.reports))
	known = known || d.Provided != nil || d.neverVoted
	return slices.ContainsFunc(d.reports, func(r Report) bool {
		return r.Live != nil && r.Live.Fleet != d.Fleet || r.Former != nil && r.Former.Fleet != d.Fleet && !known
	})
}

// mayNotSave reports whether the servers let this process save on fewer than a quorum of the nodes. They are asked
// again: an operator may give it the permission.
func (d *standaloneStep) mayNotSave() bool {
	refuse := map[int]Action{}
	for i, n := range d.nodes {
		if n.Reached && n.MayNotSave {
			refuse[i] = Action{Kind: Save, Node: i, Server: n.Server}
		}
	}
	if len(refuse) <= len(d.nodes)-quorum(len(d.nodes)) {
		return false
	}
	d.calls = refuse
	return true
}

// quarantine returns the time for which a node must not vote. A node that is lost again after it became a voter
// has a history.
func (d *standaloneStep) quarantine(i int) time.Duration {
	switch {
	case d.voted[i]:
		return d.MaxTTL
	case d.neverVoted:
		return 0
	}
	return d.Quarantine
}

// floor returns the floor of a node.
func (d *standaloneStep) floor(i int) (fencing.Token, error) {
	floor, _ := StandaloneFloor(d.reports)
	if d.Provided != nil && !d.voted[i] {
		floor = *d.Provided
	} else if d.neverVoted && !d.voted[i] {
		floor = fencing.None
	} else if _, ok := StandaloneFloor(ofFleet(d.Fleet, d.reports)); !ok {
		return fencing.None, ErrNoState
	}
	if floor > fencing.MaxToken-Jump {
		return fencing.None, ErrNearEnd
	}
	return floor, CheckStandalone(d.reports)
}

// store has the nodes reserve and save a floor, and counts those that have.
func (d *standaloneStep) store(floor fencing.Token) (reserved, saved int) {
	for i, n := range d.nodes {
		need := Action{Kind: Reserve, Node: i, Server: n.Server, Floor: floor, Vouched: d.Provided != nil || d.neverVoted}
		switch {
		case !n.Reached:
			continue
		case n.reserved(d.Fleet, floor) && n.Saved && n.SavedFloor >= floor:
			reserved, saved = reserved+1, saved+1
			continue
		case n.reserved(d.Fleet, floor):
			reserved++
			need.Kind = Save
		}
		if other, ok := d.calls[i]; !ok || other.Floor < floor {
			d.calls[i] = need
		}
	}
	return reserved, saved
}

// reserved reports whether a node has stored a floor of a fleet.
func (n *Node) reserved(fleet string, floor fencing.Token) bool {
	return slices.ContainsFunc(n.states(), func(s *State) bool { return s.Fleet == fleet && s.Floor >= floor })
}

// CheckStandalone returns ErrService if a service has used one of the nodes.
func CheckStandalone(reports []Report) error {
	for _, r := range reports {
		if slices.ContainsFunc(r.states(), func(s *State) bool { return s.Version > StandaloneVersion }) {
			return ErrService
		}
	}
	return nil
}

// vouchedServer is the run under which a node without any state reserves a floor; see reserve.lua.
const vouchedServer = "0"

// NeverVoted reports whether all nodes were reached, and none has ever voted: none has accepted a token, and none was a
// voter before its server was restarted.
func NeverVoted(reports []Report) bool {
	for _, r := range reports {
		wasVoter := r.Former != nil && r.FormerServer != vouchedServer
		if !r.Reached || wasVoter || slices.ContainsFunc(r.states(), func(s *State) bool { return s.Max > fencing.None }) {
			return false
		}
	}
	return true
}

// StateIsLost reports whether fewer than a quorum of the nodes of a fleet can report which tokens were granted, even
// if those that were not reached can.
func StateIsLost(fleet string, reports []Report) bool {
	known := ofFleet(fleet, reports)
	for i, r := range known {
		if !r.Reached {
			known[i] = Report{Reached: true, Live: &State{}}
		}
	}
	_, ok := StandaloneFloor(known)
	return !ok
}

// ofFleet returns the reports without the state of other fleets. Only a quorum of this fleet may recover a node: two
// fleets that share nodes must not divide them.
func ofFleet(fleet string, all []Report) []Report {
	mine := make([]Report, len(all))
	for i, r := range all {
		if s := r.Live; s == nil || s.Fleet == fleet {
			mine[i] = r
		}
		if s := r.Former; s != nil && s.Fleet != fleet {
			mine[i].Former = nil
		}
	}
	return mine
}

// StandaloneFloor returns the floor of a node that is recovered without a service: above
// everything that a quorum reports, live or from a former life. The reports must be
// requested after the join nonce was put on the node. ok is false while fewer than a quorum
// can report.
//
// If a quorum votes, the reports contain every granted token, and the floor is VoteJump above them. Otherwise they may
// be old, and the floor is Jump above them.
func StandaloneFloor(reports []Report) (floor fencing.Token, ok bool) {
	known, voters := 0, 0
	for _, r := range reports {
		states := r.states()
		if len(states) > 0 {
			known++
		}
		if r.Reached && r.Live != nil {
			voters++
		}
		for _, s := range states {
			floor = max(floor, s.Max, s.Floor)
		}
	}
	step := VoteJump
	if voters < quorum(len(reports)) {
		step = Jump
	}
	return floor + step, known >= quorum(len(reports))
}
