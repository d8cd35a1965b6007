package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// joinGap is the time without a join after which the quarantine of a server starts again.
const joinGap = 5 * time.Second

// server is a Redis server. It may live on after its address leads to another one.
type server struct {
	name         string
	live         *recovery.State
	join         string
	since        time.Duration // when its quarantine began
	joined       time.Duration // when its last join was
	formerServer string
	former       *recovery.State
	down         bool
}

// world has a log, the servers behind the addresses of its fleet, and the servers that have
// lost their address. Its leader takes the steps of a Plan, one action at a time.
type world struct {
	t       *testing.T
	log     *machine.Machine
	plan    *fleet.Plan
	now     time.Duration
	at      map[string]*server // by address
	servers map[string]*server // by name; those that were not stopped
	used    []machine.Set      // the lives of each version that callers may have used
	joins   int
	ranges  map[string]int // assigned to each life
}

func newWorld(t *testing.T) *world { return newWorldOf(t, three) }

// newWorldOf returns a world whose log has this fleet.
func newWorldOf(t *testing.T, f engine.Fleet) *world {
	w := &world{t: t, log: machine.New(), plan: fleet.NewPlan(), at: map[string]*server{}, servers: map[string]*server{},
		ranges: map[string]int{}}
	for _, address := range append(slices.Clone(f.Addresses), other.Addresses...) {
		w.move(address)
	}
	w.apply(&machine.SetFleet{Fleet: f})
	w.run()
	require.True(t, w.log.Topology().Ready)
	return w
}

// move makes an address lead to a new, empty server. The old one lives on.
func (w *world) move(address string) {
	s := &server{name: fmt.Sprintf("s%d", len(w.servers))}
	w.at[address], w.servers[s.name] = s, s
}

// moveBack makes an address lead to a server that it led to before.
func (w *world) moveBack(address string, s *server) { w.at[address] = s }

// restart stops the server at an address and starts another one on its data.
func (w *world) restart(address string) {
	old := w.at[address]
	w.move(address)
	w.at[address].former, w.at[address].formerServer = old.former, old.formerServer
	if old.live != nil {
		w.at[address].former, w.at[address].formerServer = old.live, old.name
	}
	old.live, old.down = nil, true
}

// flush removes all data of the server at an address.
func (w *world) flush(address string) {
	s := w.at[address]
	s.live, s.join, s.former, s.formerServer = nil, "", nil, ""
}

func (w *world) apply(c machine.Command) machine.Result {
	result, _ := w.log.Apply(c)
	if topology := w.log.Topology(); topology.Ready {
		w.used = append(w.used, machine.Set{Version: topology.Version, Lives: topology.Lives})
	}
	return result
}

func (w *world) nodes(state machine.Efficiency) (nodes []recovery.Node) {
	for _, address := range state.Fleet.Addresses {
		s := w.at[address]
		if s.down {
			nodes = append(nodes, recovery.Node{})
			continue
		}
		n := recovery.Node{Joining: s.join, Report: recovery.Report{Reached: true, Server: s.name,
			FormerServer: s.formerServer, Former: s.former}}
		if s.live != nil {
			live := *s.live
			n.Live = &live
		}
		if s.join != "" {
			n.Joined = w.now - s.joined
			n.Quarantine = recovery.QuarantineLeft(maxTTL, w.now-s.since, n.Joined, joinGap)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// step takes one step. The leader is replaced before the action that a number chooses, if
// any.
func (w *world) step(crash int) (progressed bool) {
	state := w.log.Efficiency()
	step := w.plan.Step(state, w.nodes(state), start.Add(w.now))
	w.now += time.Second
	for i, a := range step.Actions {
		if i == crash {
			w.plan = fleet.NewPlan()
			return true
		}
		w.do(state, a)
	}
	return len(step.Actions) > 0
}

// run takes steps until there is nothing to do for two maximal TTLs.
func (w *world) run() {
	for idle := time.Duration(0); idle < 2*maxTTL; idle += time.Second {
		if w.step(-1) {
			idle = 0
		}
		require.Less(w.t, w.now, 10*time.Hour, "the leader never finishes")
	}
}

func (w *world) do(state machine.Efficiency, a fleet.Action) {
	if c := a.Command(state); c != nil {
		got := w.apply(c)
		if a.Kind == fleet.NameLife && got.Code == machine.Done {
			w.ranges[a.Life]++
			require.Equal(w.t, 1, w.ranges[a.Life], "a life is named once")
		}
		return
	}
	w.doNode(state, state.Fleet.Addresses[a.Node], a)
}

func (w *world) doNode(state machine.Efficiency, address string, a fleet.Action) {
	s := w.at[address]
	if s.name != a.Server || s.down {
		return
	}
	switch a.Kind {
	case fleet.Join:
		w.joins++
		s.join, s.joined, s.since = fleet.JoinNonce(state.Version, fmt.Sprint(w.joins)), w.now, w.now
	case fleet.Rejoin:
		require.Equal(w.t, s.join, a.Join)
		if w.now-s.joined >= joinGap {
			s.since = w.now
		}
		s.joined = w.now
	case fleet.Advance:
		if s.live != nil && s.live.Fleet == a.Goal.Fleet {
			s.live.Version, s.live.Successor = max(s.live.Version, a.Goal.Version), a.Goal.Successor
			s.live.Floor, s.live.Ceiling = max(s.live.Floor, a.Goal.Floor), max(s.live.Ceiling, a.Goal.Ceiling)
		}
	case fleet.Initialise:
		if s.join != a.Range.Join || w.now-s.since < a.Range.Quarantine {
			return
		}
		s.live = &recovery.State{Version: a.Range.Version, Fleet: state.Fleet.Fingerprint(), Floor: a.Range.Floor,
			Max:     a.Range.Floor,
			Ceiling: a.Range.Ceiling, Join: s.join}
		s.join, s.former, s.formerServer = "", nil, ""
		w.check(s, recovery.LifeName(s.name, a.Range.Join))
	}
}

// check checks, when a life begins to vote, that no set without it can still grant, as far
// as its servers can be asked.
func (w *world) check(voter *server, life string) {
	state := w.log.Efficiency()
	for _, set := range w.used {
		if len(set.Lives) != len(state.Fleet.Addresses) || set.Version < state.ReconcileVersion ||
			slices.Contains(set.Lives, life) {
			continue
		}
		grants, asked := 0, 0
		for i, name := range set.Lives {
			s := w.servers[recovery.ServerOf(name)]
			if s == nil || s == voter {
				continue
			}
			if s.live != nil && s.live.Version <= set.Version {
				grants++
			}
			if w.at[state.Fleet.Addresses[i]] == s && !s.down {
				asked++
			}
		}
		q := len(set.Lives)/2 + 1
		require.True(w.t, grants < q || asked < q, "%s votes while version %d can still grant", life, set.Version)
	}
}

// requireRecovered fails unless all nodes vote in the lives of the topology, with distinct
// floors, and nothing is left to do.
func (w *world) requireRecovered() {
	w.t.Helper()
	state := w.log.Efficiency()
	require.True(w.t, w.log.Topology().Ready)
	require.Empty(w.t, state.Open)
	for i, n := range w.nodes(state) {
		require.Equal(w.t, state.Lives[i].Name, n.Life())
		require.False(w.t, state.Lives[i].Pending, "the floor is used up")
	}
}

func TestRecoveries(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"a restart":                  func(w *world) { w.restart("a:1") },
		"an emptied server":          func(w *world) { w.flush("a:1") },
		"a moved address":            func(w *world) { w.move("a:1") },
		"two restarts":               func(w *world) { w.restart("a:1"); w.restart("b:1") },
		"two moved addresses":        func(w *world) { w.move("a:1"); w.move("b:1") },
		"two emptied servers":        func(w *world) { w.flush("a:1"); w.flush("c:1") },
		"a restart and a move":       func(w *world) { w.restart("a:1"); w.move("b:1") },
		"all restarted":              func(w *world) { w.restart("a:1"); w.restart("b:1"); w.restart("c:1") },
		"all moved":                  func(w *world) { w.move("a:1"); w.move("b:1"); w.move("c:1") },
		"all emptied":                func(w *world) { w.flush("a:1"); w.flush("b:1"); w.flush("c:1") },
		"all moved, one after other": func(w *world) { w.move("a:1"); w.run(); w.move("b:1"); w.run(); w.move("c:1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := w.log.Ceiling()
			lose(w)
			w.run()
			w.requireRecovered()
			if alone := []string{"a restart", "an emptied server", "a moved address",
				"all moved, one after other"}; slices.Contains(alone, name) {
				require.Equal(t, before, w.log.Ceiling(), "the other nodes report what was granted")
			} else {
				require.Greater(t, w.log.Ceiling(), before)
			}
		})
	}
}

// Servers are lost, the leader changes, policies and the fleet change and a backup is
// restored, each in the middle of the recoveries of others. Always the recoveries end.
func TestRecoveriesInterrupted(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(t)
		random := rand.New(rand.NewPCG(seed, 20))
		address := func() string { return three.Addresses[random.IntN(3)] }
		backup := w.log.Snapshot()
		for range 40 {
			switch random.IntN(12) {
			case 0:
				w.restart(address())
			case 1:
				w.move(address())
			case 2:
				w.flush(address())
			case 3:
				w.apply(&machine.SetPolicy{Policy: engine.Policy{Prefix: fmt.Sprint(w.now), Mode: engine.Mode(1 + random.IntN(2))}})
			case 4:
				w.apply(&machine.SetFleet{Fleet: []engine.Fleet{three, other}[random.IntN(2)]})
			case 5:
				w.now += time.Duration(random.IntN(int(maxTTL)))
			case 6:
				if seed%4 == 0 {
					w.restore(backup)
				}
			default:
				w.step(random.IntN(6))
			}
		}
		w.run()
		if !w.log.Topology().Ready { // an operator must say how far tokens had come
			state := w.log.Efficiency()
			require.True(t, state.Restored, "seed %d", seed)
			w.apply(&machine.SetFleet{Fleet: three, Force: true})
			w.provideFloor()
			w.run()
		}
		w.requireRecovered()
	}
}

// restore replaces the log by a backup in a new cluster.
func (w *world) restore(backup []byte) {
	m, err := machine.Restore(backup)
	require.NoError(w.t, err)
	w.log, w.plan, w.ranges = m, fleet.NewPlan(), map[string]int{}
	w.apply(&machine.MarkRestored{})
}

// provideFloor does what the Keeper does with a floor of an operator.
func (w *world) provideFloor() {
	state := w.log.Efficiency()
	var reports []recovery.Report
	for _, n := range w.nodes(state) {
		reports = append(reports, n.Report)
	}
	e := recovery.Reconcile(state.Fleet.Fingerprint(), reports, false)
	w.apply(&machine.Reconcile{Version: e.Version, Ceiling: 1 << 45, Lives: e.Lives, Past: e.Past})
}

// An address leads to a new server, back to the old one, and to the new one again. Its quarantine starts again,
// although it was joined long ago.
func TestQuarantineStartsAgainWhenAnAddressLeadsBack(t *testing.T) {
	for name, change := range map[string]func(*world){
		"for a long time": (*world).run,
		"for a while": func(w *world) {
			w.step(-1)
			w.step(-1)
		},
		"unseen by this leader": func(w *world) {
			w.now += joinGap
			w.plan = fleet.NewPlan()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.at["a:1"]
			w.move("a:1")
			second := w.at["a:1"]
			for range 50 {
				w.step(-1)
			}
			require.NotEmpty(t, second.join)
			w.moveBack("a:1", first)
			change(w)
			w.moveBack("a:1", second)
			back := w.now
			for second.live == nil {
				w.step(-1)
			}
			require.GreaterOrEqual(t, w.now-back, maxTTL)
			w.run()
			w.requireRecovered()
		})
	}
}
