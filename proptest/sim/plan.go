package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// maxDrift is the largest drift, in ppm, of a clock that satisfies the assumptions of M2:
// two such clocks differ by less than the 1 % that a holder gives up early.
const maxDrift = 4000

// Setting is the system under test of a run.
type Setting uint8

// The settings.
const (
	// Correctness is a service without Redis nodes.
	Correctness Setting = iota
	// Standalone is a fleet of Redis nodes without a service.
	Standalone
	// Service is a service with Redis nodes, whose locks change their mode.
	Service
	settings // their number
)

// String names the setting in reports.
func (s Setting) String() string {
	return [...]string{"simulator, correctness mode", "simulator, standalone fleet",
		"simulator, service with both modes"}[s]
}

// Plan describes a run: its processes and its faults. The same Plan produces the same
// history.
type Plan struct {
	Seed    uint64
	Setting Setting
	Nodes   int // of the service, or of the standalone fleet
	Redises int // Redis servers of a Service, some of which are the fleet
	Clients int
	Locks   int
	TTL     time.Duration
	// Outsider: the last client uses Redis without the service, since before that has a fleet, or has another longest TTL.
	Outsider bool
	Late     time.Duration // when a Service gets its first fleet
	Think    time.Duration // maximal pause of a client between two leases
	Writes   int           // maximum under one lease
	Work     time.Duration // maximal time between a read and its write
	Latency  time.Duration // minimum of a message
	Jitter   time.Duration // maximum, added to Latency
	Length   time.Duration // of the part with faults
	Faults   []Fault       // in the order of their time
	Flaws    Flaws
}

// Flaws disable safety measures, to show that the checkers notice. All of them are in
// simulated code: production code has no such switches.
type Flaws struct {
	NoEnter      bool // holders read without entering the gate
	TornGate     bool // the gate writes some time after the check
	LateValidity bool // the validity of a lease counts from the answer
	KeepsWriting bool // a holder continues after a write with unknown outcome
	LosesValues  bool // the storage sometimes confirms a write and keeps the old value
}

// FaultKind is a kind of fault.
type FaultKind uint8

// The kinds of faults. Target selects the process; For is the duration.
const (
	PauseClient    FaultKind = iota // its clock continues
	PauseAtStep                     // the same, before its next Step
	SuspendClient                   // with its host: one of its two clocks stops
	CrashClient                     // it loses its state
	DriftClient                     // its clock runs at another rate
	JumpClient                      // its clock jumps by Size
	StopClient                      // its clocks stop, it continues
	PauseNode                       // its clock continues
	CrashNode                       // it restarts with its data
	EmptyNode                       // it restarts without its data
	DriftNode                       // its clock runs at another rate
	JumpNode                        // its clock jumps by Size
	StopNode                        // its clock stops
	Misconfigure                    // a Redis server must not be a node for a while
	Isolate                         // all messages from and to a node are lost
	CutOneWay                       // messages from Target to Other are lost
	Split                           // the processes are partitioned into two groups
	CutClient                       // a client reaches no node
	CutStorage                      // a client does not reach the storage
	LoseMessages                    // Size percent of all
	RepeatMessages                  // Size percent of all
	DelayMessages                   // Size percent of all, by up to For
	Depose                          // another replica is elected; the leader may not know
	ChangeMembers                   // a member is removed and added again later
	RestoreBackup                   // an operator restores an older state
	MoveLocks                       // a policy change migrates locks to the other mode
	AbortMigration                  // a migration is aborted
	ChangeFleet                     // to other Redis servers
	EmptyFleet                      // all Redis servers of the fleet lose their data at once
	CrashAtAction                   // the leader crashes at its next action of a kind
	StaleTopology                   // a client receives no newer topology
	faultKinds                      // their number
)

var faultNames = [...]string{"pause of a client", "pause of a client at a step", "suspend of a client",
	"crash of a client",
	"client clock drift", "client clock jump", "client clock stop",
	"pause of a node", "crash of a node", "crash without data", "node clock drift", "node clock jump", "node clock stop",
	"misconfigured Redis server",
	"isolation of a node", "one-way cut", "split", "client cut off", "storage cut off",
	"messages lost", "messages repeated", "messages late and out of order", "leader deposed", "membership change",
	"restore from backup",
	"migration of locks", "migration aborted", "change of the fleet", "fleet emptied", "leader crash at an action",
	"stale topology"}

// String names the kind.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one fault. Target and Other are taken modulo the number of processes.
type Fault struct {
	At     time.Duration
	Kind   FaultKind
	Target int
	Other  int
	For    time.Duration
	Size   int
	Step   Step
}

// String formats the fault on one line.
func (f Fault) String() string {
	s := fmt.Sprintf("%v: %s, target %d, other %d, for %v, size %d", f.At, f.Kind, f.Target, f.Other, f.For, f.Size)
	if f.Kind == PauseAtStep {
		s += ", before " + f.Step.String()
	}
	return s
}

// breaksTiming reports whether a fault violates the assumptions of M2: clients do not
// pause, clocks run at about the same rate, and no operator restores an older state.
func (k FaultKind) breaksTiming() bool {
	return k <= StopClient && k != CrashClient || k >= DriftNode && k <= StopNode || k == RestoreBackup
}

// Synchronous reports whether the assumptions of M2 hold in this run: at most one client
// may then believe that it holds a lock.
func (p Plan) Synchronous() bool {
	return !slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return f.Kind.breaksTiming() && (f.Kind != RestoreBackup || p.Setting != Standalone) || f.now()
	})
}

// now reports whether a change does not wait for leases to end.
func (f Fault) now() bool { return (f.Kind == MoveLocks || f.Kind == ChangeFleet) && f.Size&1 != 0 }

// soundNodeClocks reports whether no fault changes the clock of a node.
func (p Plan) soundNodeClocks() bool {
	return !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind >= DriftNode && f.Kind <= StopNode })
}

// soundClientClocks reports whether no fault changes the clock of a client.
func (p Plan) soundClientClocks() bool {
	return !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind >= DriftClient && f.Kind <= StopClient })
}

// Random returns the plan of a seed, with faults of the given kinds or, without any, of a
// random profile.
func Random(seed uint64, kinds ...FaultKind) Plan {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	p := Plan{Seed: seed, Setting: [...]Setting{Service, Correctness, Standalone}[seed%3], Nodes: pick(r, 3, 3, 3, 5, 1),
		Clients: 2 + r.IntN(5), Locks: pick(r, 1, 2, 3, 8),
		TTL:    pick(r, time.Second, 2*time.Second, 4*time.Second),
		Length: 30*time.Second + time.Duration(r.IntN(300))*time.Second,
		Think:  pick(r, 50*time.Millisecond, 200*time.Millisecond, time.Second), Writes: pick(r, 4, 10, 40),
		Latency: pick(r, 100*time.Microsecond, time.Millisecond, 10*time.Millisecond)}
	p.Work = p.TTL / time.Duration(pick(r, 4, 50, 400))
	p.Jitter = p.Latency * time.Duration(pick(r, 1, 3, 10))
	name := pick(r, "everything", "everything", "everything", "synchronous", "network", "clocks", "nodes", "emptied")
	profile := Profiles[name]
	if len(kinds) > 0 {
		profile = kinds
	} else if p.Setting == Service {
		profile = slices.Concat(profile, changes, changes)
	}
	if p.Setting == Service {
		p.Redises = pick(r, 3, 4, 5, 6)
		p.Late = time.Duration(r.Int64N(int64(pick(r, 1, 1, p.Length))))
	}
	if p.Outsider = r.IntN(4) == 0 && (p.Setting == Standalone || p.Setting == Service && p.Locks > 1); p.Outsider {
		p.Late += 5 * time.Second
	}
	every := pick(r, 700*time.Millisecond, 3*time.Second, 10*time.Second)
	for at := time.Duration(0); at < p.Length; at += time.Duration(r.Int64N(int64(2 * every))) {
		f := Fault{At: at, Kind: profile[r.IntN(len(profile))], Target: r.IntN(60), Other: r.IntN(60),
			For: time.Duration(r.Int64N(int64(pick(r, 1, 3, 10)) * int64(p.TTL))), Step: pick(r, Step(r.IntN(int(steps))),
				AboutToWrite)}
		if f.Size = f.size(r); name == "synchronous" && f.now() {
			f.Size--
		}
		p.Faults = append(p.Faults, f)
	}
	return p
}

// size draws Size, whose meaning depends on the kind.
func (f Fault) size(r *rand.Rand) int {
	switch f.Kind {
	case DriftClient, DriftNode:
		return pick(r, -900_000, -100_000, 50_000, 300_000, 2_000_000) // millionths
	case JumpClient, JumpNode:
		return pick(r, -1, 1) * r.IntN(20_000) // milliseconds
	case Split:
		return r.IntN(1 << 12) // one bit per process
	case Misconfigure:
		return r.IntN(1 << 20) // how, and one bit per process
	case MoveLocks, ChangeFleet, CrashAtAction:
		return r.IntN(1 << 12) // a bit set of options
	}
	return 1 + r.IntN(40)
}

// changes are the actions of the operator of a Service, and faults during them.
var changes = []FaultKind{MoveLocks, MoveLocks, MoveLocks, AbortMigration, ChangeFleet, EmptyFleet, EmptyNode,
	CrashNode, CrashAtAction, CrashAtAction, StaleTopology, Misconfigure}

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// Profiles are sets of fault kinds. M2 must hold in synchronous runs.
var Profiles = map[string][]FaultKind{
	"everything":  all(func(FaultKind) bool { return true }),
	"synchronous": all(func(k FaultKind) bool { return !k.breaksTiming() }),
	"network":     all(func(k FaultKind) bool { return k >= Isolate && k <= DelayMessages }),
	"clocks": all(func(k FaultKind) bool {
		return k <= StopNode && k != CrashNode && k != EmptyNode && k != CrashClient
	}),
	"nodes": all(func(k FaultKind) bool {
		return k == PauseNode || k == CrashNode || k == EmptyNode || k == Misconfigure || k >= Depose
	}),
	"emptied": {EmptyNode, EmptyNode, EmptyNode, CrashNode, CutOneWay, LoseMessages, DelayMessages, Misconfigure},
}

func all(keep func(FaultKind) bool) []FaultKind {
	var kept []FaultKind
	for k := range MoveLocks { // later kinds apply to a Service only
		if keep(k) {
			kept = append(kept, k)
		}
	}
	return kept
}
