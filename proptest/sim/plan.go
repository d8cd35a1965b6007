package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// maxDrift is by how much, in millionths, a clock may be wrong that is
// still as good as the promises ask for: two of them stay within the 1 % that a
// holder gives up early.
const maxDrift = 4000

// Setting is what takes part in a run.
type Setting uint8

// The settings.
const (
	// Correctness is a service without Redis nodes.
	Correctness Setting = iota
	// Standalone is a fleet of Redis nodes without a service.
	Standalone
	// Service is a service with Redis nodes, whose locks change their mode.
	Service
	settings // how many there are
)

// String names the setting in reports.
func (s Setting) String() string {
	return [...]string{"simulator, correctness mode", "simulator, standalone fleet", "simulator, service with both modes"}[s]
}

// Plan is a run: who takes part, and what goes wrong when. The same Plan gives
// the same history.
type Plan struct {
	Seed    uint64
	Setting Setting
	Nodes   int // of the service, or of the standalone fleet
	Redises int // Redis servers of a Service; a fleet is some of them
	Clients int
	Locks   int
	TTL     time.Duration
	Think   time.Duration // a client's pause between two leases, at most
	Writes  int           // under one lease, at most
	Work    time.Duration // between a read and its write, at most
	Latency time.Duration // of a message, at least
	Jitter  time.Duration // on top of it, at most
	Length  time.Duration // of the part with faults
	Faults  []Fault       // in the order of their time
	Flaws   Flaws
}

// Flaws are counter-measures that a run does without, to show what they are
// good for. They are all in the simulated world: production has no switches.
type Flaws struct {
	NoEnter      bool // holders read before they have entered the gate
	TornGate     bool // the gate checks, and writes a little later
	LateValidity bool // the time of a lease counts from when the answer came
	KeepsWriting bool // a holder goes on after a write whose outcome it does not know
	LosesValues  bool // the storage confirms and counts a write now and then, and keeps the old value
}

// FaultKind is a kind of fault.
type FaultKind uint8

// The kinds of faults. Those of processes go to Target; a fault that has a length
// lasts For.
const (
	PauseClient    FaultKind = iota // stands still, its clock runs
	PauseAtStep                     // the same, when it next comes to Step
	SuspendClient                   // stands still with its machine: one of its two clocks stops
	CrashClient                     // forgets everything
	DriftClient                     // its clock runs at another rate
	JumpClient                      // its clock jumps by Size
	StopClient                      // its clocks stand still, it does not
	PauseNode                       // as above, of a node
	CrashNode                       // comes back with its data
	EmptyNode                       // comes back without
	DriftNode                       // its clock runs at another rate
	JumpNode                        // its clock jumps by Size
	StopNode                        // its clock stands still
	Isolate                         // a node hears nobody, nor is heard
	CutOneWay                       // messages from Target to Other are lost
	Split                           // the processes fall into two groups
	CutClient                       // a client reaches no node
	CutStorage                      // a client does not reach the storage
	LoseMessages                    // Size percent of all
	RepeatMessages                  // Size percent of all
	DelayMessages                   // Size percent of all, by up to For
	Depose                          // the leader leads no more, and may not know
	ChangeMembers                   // a member is taken out, and put back later
	RestoreBackup                   // the state of a while ago, by order of an operator
	MoveLocks                       // a policy changes, and locks move to the other mode
	AbortMove                       // a move is aborted
	ChangeFleet                     // other Redis servers
	EmptyFleet                      // all Redis servers of the fleet lose everything at once
	CrashAtAction                   // the leader crashes at its next action of a kind
	StaleTopology                   // a client hears of no newer topology
	faultKinds                      // how many there are
)

var faultNames = [...]string{"pause of a client", "pause of a client at a step", "suspend of a client", "crash of a client",
	"client clock drift", "client clock jump", "client clock stop",
	"pause of a node", "crash of a node", "crash without data", "node clock drift", "node clock jump", "node clock stop",
	"isolation of a node", "one-way cut", "split", "client cut off", "storage cut off",
	"messages lost", "messages repeated", "messages late and out of order", "leader deposed", "membership change", "restore from backup",
	"move of locks", "move aborted", "change of the fleet", "fleet emptied", "leader crash at an action", "stale topology"}

// String is the fault in words.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one thing that goes wrong. Target and Other are taken modulo the
// number of processes there are.
type Fault struct {
	At     time.Duration
	Kind   FaultKind
	Target int
	Other  int
	For    time.Duration
	Size   int
	Step   Step
}

// String is the fault on one line.
func (f Fault) String() string {
	s := fmt.Sprintf("%v: %s, target %d, other %d, for %v, size %d", f.At, f.Kind, f.Target, f.Other, f.For, f.Size)
	if f.Kind == PauseAtStep {
		s += ", before " + f.Step.String()
	}
	return s
}

// breaksTiming reports whether a fault takes away what M2 rests on: that clients
// do not pause, that clocks run at about the same rate, and that no operator
// turns back the state.
func (k FaultKind) breaksTiming() bool {
	return k <= StopClient && k != CrashClient || k >= DriftNode && k <= StopNode || k == RestoreBackup
}

// Honest reports whether M2 is promised in this run: at most one client
// believes that it holds.
func (p Plan) Synchronous() bool {
	for _, f := range p.Faults {
		if f.Kind.breaksTiming() {
			return false
		}
	}
	return p.Setting == Correctness
}

// Random is the plan of a seed. Of the kinds of faults it has those that are
// named, or those that the seed has a profile for.
func Random(seed uint64, kinds ...FaultKind) Plan {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	p := Plan{Seed: seed, Setting: [...]Setting{Service, Correctness, Standalone}[seed%3], Nodes: pick(r, 3, 3, 3, 5, 1), Clients: 2 + r.IntN(5), Locks: pick(r, 1, 2, 3, 8),
		TTL: pick(r, time.Second, 2*time.Second, 4*time.Second), Length: 30*time.Second + time.Duration(r.IntN(300))*time.Second,
		Think: pick(r, 50*time.Millisecond, 200*time.Millisecond, time.Second), Writes: pick(r, 4, 10, 40),
		Latency: pick(r, 100*time.Microsecond, time.Millisecond, 10*time.Millisecond)}
	p.Work = p.TTL / time.Duration(pick(r, 4, 50, 400))
	p.Jitter = p.Latency * time.Duration(pick(r, 1, 3, 10))
	kinds0 := Profiles[pick(r, "everything", "everything", "everything", "synchronous", "network", "clocks", "nodes", "emptied")]
	if len(kinds) > 0 {
		kinds0 = kinds
	} else if p.Setting == Service {
		kinds0 = slices.Concat(kinds0, changes, changes)
	}
	if p.Setting == Service {
		p.Redises = pick(r, 3, 4, 5, 6)
	}
	every := pick(r, 700*time.Millisecond, 3*time.Second, 10*time.Second)
	for at := time.Duration(0); at < p.Length; at += time.Duration(r.Int64N(int64(2 * every))) {
		f := Fault{At: at, Kind: kinds0[r.IntN(len(kinds0))], Target: r.IntN(60), Other: r.IntN(60),
			For: time.Duration(r.Int64N(int64(pick(r, 1, 3, 10)) * int64(p.TTL))), Step: pick(r, Step(r.IntN(int(steps))), AboutToWrite)}
		f.Size = f.size(r)
		p.Faults = append(p.Faults, f)
	}
	return p
}

// size draws what Size means for this kind.
func (f Fault) size(r *rand.Rand) int {
	switch f.Kind {
	case DriftClient, DriftNode:
		return pick(r, -900_000, -100_000, 50_000, 300_000, 2_000_000) // millionths
	case JumpClient, JumpNode:
		return pick(r, -1, 1) * r.IntN(20_000) // milliseconds
	case Split:
		return r.IntN(1 << 12) // who is on which side, as bits
	case MoveLocks, ChangeFleet, CrashAtAction:
		return r.IntN(1 << 12) // what, and how, as bits
	}
	return 1 + r.IntN(40)
}

// changes are what an operator of a Service does, and what goes wrong then.
var changes = []FaultKind{MoveLocks, MoveLocks, MoveLocks, AbortMove, ChangeFleet, EmptyFleet, EmptyNode, CrashNode, CrashAtAction, CrashAtAction, StaleTopology}

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// Profiles are the kinds of faults that a run is made of. In honest ones M2 must
// hold.
var Profiles = map[string][]FaultKind{
	"everything":  all(func(FaultKind) bool { return true }),
	"synchronous": all(func(k FaultKind) bool { return !k.breaksTiming() }),
	"network":     all(func(k FaultKind) bool { return k >= Isolate && k <= DelayMessages }),
	"clocks":      all(func(k FaultKind) bool { return k <= StopNode && k != CrashNode && k != EmptyNode && k != CrashClient }),
	"nodes":       all(func(k FaultKind) bool { return k == PauseNode || k == CrashNode || k == EmptyNode || k >= Depose }),
	"emptied":     {EmptyNode, EmptyNode, EmptyNode, CrashNode, CutOneWay, LoseMessages, DelayMessages},
}

func all(keep func(FaultKind) bool) []FaultKind {
	var kept []FaultKind
	for k := range MoveLocks { // what follows is of a Service alone
		if keep(k) {
			kept = append(kept, k)
		}
	}
	return kept
}
