package recovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// world is three nodes of fleet "f" and the process that recovers them.
type world struct {
	t      *testing.T
	core   Standalone
	nodes  []Node
	nonces int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, core: Standalone{Fleet: "f", Quarantine: time.Minute, MaxTTL: time.Minute}, nodes: make([]Node, 3)}
	for i := range w.nodes {
		w.nodes[i].Report = live(1, 5, 0, fencing.MaxToken)
		w.nodes[i].Server = fmt.Sprint("s", i)
	}
	return w
}

// lose empties a node, under another run of its server.
func (w *world) lose(i int) {
	w.nodes[i] = Node{Report: Report{Reached: true, Server: w.nodes[i].Server + "'"}, Quarantine: time.Minute}
}

// loseAll empties all nodes before the process begins.
func (w *world) loseAll() {
	var reports []Report
	for i := range w.nodes {
		w.lose(i)
		reports = append(reports, w.nodes[i].Report)
	}
	w.core.Begin(reports)
}

// step takes a step, carries out its actions, and returns their kinds.
func (w *world) step() (kinds []Kind, waiting map[int]error) {
	w.t.Helper()
	actions, waiting, _ := w.core.Step(w.nodes, func() string {
		w.nonces++
		return fmt.Sprint("j", w.nonces)
	})
	for _, a := range actions {
		n := &w.nodes[a.Node]
		require.Equal(w.t, n.Server, a.Server)
		kinds = append(kinds, a.Kind)
		switch a.Kind {
		case Join:
			n.Joining = a.Join
		case Reserve:
			if n.Live != nil {
				reserved := *n.Live
				reserved.Floor, reserved.Max = max(reserved.Floor, a.Floor), max(reserved.Max, a.Floor)
				n.Live = &reserved
			} else if n.Former == nil && a.Vouched {
				n.FormerServer, n.Former = vouchedServer, &State{Version: 1, Fleet: "f", Floor: a.Floor, Max: a.Floor}
			}
		case Save:
			n.Saved, n.SavedFloor = true, a.Floor
		case Initialise:
			require.Equal(w.t, n.Joining, a.Range.Join)
			n.Live = &State{Version: a.Range.Version, Fleet: "f", Floor: a.Range.Floor, Max: a.Range.Floor,
				Ceiling: a.Range.Ceiling, Join: n.Joining}
			n.Joining, n.Quarantine, n.Former, n.FormerServer = "", 0, nil, ""
		}
	}
	return kinds, waiting
}

// An empty node is joined, waits, and gets a floor that a quorum has reserved and saved.
func TestStandaloneRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kinds, waiting := w.step()
	require.Empty(t, kinds)
	require.Empty(t, waiting)
	w.lose(0)
	for range 3 {
		kinds, waiting = w.step()
		require.Equal(t, []Kind{Join}, kinds)
		require.ErrorContains(t, waiting[0], "quarantine")
	}
	require.Equal(t, 1, w.nonces, "the nonce is repeated")
	w.nodes[0].Quarantine = 0
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join}, kinds, "the other nodes may have reported before the quarantine ended")
	w.nodes[1].Live = live(1, 9, 0, fencing.MaxToken).Live
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join, Reserve, Reserve, Reserve}, kinds)
	kinds, waiting = w.step()
	require.Equal(t, []Kind{Join, Reserve, Save, Save}, kinds)
	require.ErrorContains(t, waiting[0], "2 of 3 Redis nodes have reserved the floor")
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join, Initialise, Reserve}, kinds)
	require.Equal(t, 9+VoteJump, w.nodes[0].Live.Floor)
	kinds, waiting = w.step()
	require.Empty(t, kinds)
	require.Empty(t, waiting)
}

// A quarantine that starts again, a node whose address led to another server, and a node that is lost again
// start again.
func TestStandaloneRecoveryStartsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lose(0)
	w.step()
	w.nodes[0].Quarantine = 0
	w.step()
	w.step()
	w.nodes[0].Quarantine = time.Second
	kinds, _ := w.step()
	require.Equal(t, []Kind{Join}, kinds, "the floor was chosen before the quarantine ended")
	w.nodes[0].Quarantine = 0
	w.step()
	first := w.nodes[0]
	w.nodes[0].Report = live(1, 5, 0, fencing.MaxToken)
	w.nodes[0].Server = "other"
	w.step()
	w.nodes[0] = first
	w.step()
	require.Equal(t, 2, w.nonces, "the address led to another server meanwhile")
	w.lose(0)
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join}, kinds)
	require.Equal(t, 3, w.nonces)
}

// A process keeps out of the recovery of another fleet, even if all its nodes were restarted, and leaves it to the
// processes of that fleet if it had begun: a join nonce that is repeated would keep them out forever.
func TestStandaloneLeavesOtherFleetsAlone(t *testing.T) {
	t.Parallel()
	for name, former := range map[string]bool{"that votes": false, "that was restarted": true} {
		w := newWorld(t)
		w.lose(0)
		seen := []Report{w.nodes[1].Report, w.nodes[2].Report}
		for i, r := range seen {
			r.Live.Fleet = "g"
			if former {
				r.Former, r.FormerServer, r.Live = r.Live, "s", nil
			}
			w.nodes[1+i].Report = r
		}
		kinds, waiting := w.step()
		require.Empty(t, kinds, name)
		require.ErrorIs(t, waiting[0], ErrFleet, name)
	}
	w := newWorld(t)
	w.lose(0)
	w.nodes[0].FormerServer, w.nodes[0].Former = "s", &State{Version: 1, Fleet: "g"}
	kinds, _ := w.step()
	require.Equal(t, []Kind{Join}, kinds, "a quorum knows what this fleet has granted")
}

// A process that cannot recover an empty node, because it does not reach a quorum, does not join it either. It would
// keep out the processes that can.
func TestStandaloneJoinsOnlyWhatItCanRecover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lose(0)
	seen := w.nodes[1].Report
	w.nodes[1].Report = Report{}
	kinds, waiting := w.step()
	require.Empty(t, kinds)
	require.ErrorContains(t, waiting[0], "fewer than a quorum")
	require.NotErrorIs(t, waiting[0], ErrNoState, "callers wait for the other node")
	w.nodes[1].Report = seen
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join}, kinds)
	w.nodes[1].Report = Report{}
	kinds, _ = w.step()
	require.Empty(t, kinds)
}

// A process that may not have a quorum save a floor does not join an empty node. It asks again whether it may. If the
// state is lost, its joins keep out processes that take the nodes for new ones.
func TestStandaloneJoinsOnlyWhatItMaySave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lose(0)
	w.nodes[1].MayNotSave = true
	kinds, _ := w.step()
	require.Equal(t, []Kind{Join}, kinds, "it may on a quorum")
	w.nodes[2].MayNotSave = true
	kinds, waiting := w.step()
	require.Equal(t, []Kind{Save, Save}, kinds)
	require.ErrorContains(t, waiting[0], "leaves that to others")
	w.nodes[2].MayNotSave = false
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join}, kinds)
	w.loseAll()
	for i := range w.nodes {
		w.nodes[i].MayNotSave = true
	}
	kinds, _ = w.step()
	require.Equal(t, []Kind{Join, Join, Join}, kinds)
}

// A save of a former run of a server does not count.
func TestStandaloneSaveBelongsToARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lose(0)
	w.step()
	w.nodes[0].Quarantine = 0
	for range 3 {
		w.step()
	}
	w.nodes[1].Saved = false
	kinds, _ := w.step()
	require.NotContains(t, kinds, Initialise)
}

func TestStandaloneRefusals(t *testing.T) {
	t.Parallel()
	floor := fencing.MaxToken
	for name, c := range map[string]struct {
		change func(w *world)
		want   error
	}{
		"too few can report": {func(w *world) { w.lose(1) }, ErrNoState},
		"used by a service":  {func(w *world) { w.nodes[1].Live.Version = 2 }, ErrService},
		"near the end":       {func(w *world) { w.core.Provided = &floor }, ErrNearEnd},
		"another fleet":      {func(w *world) { w.nodes[1].Live.Fleet = "g" }, ErrFleet},
	} {
		w := newWorld(t)
		w.lose(0)
		c.change(w)
		var waiting map[int]error
		for range 3 {
			_, waiting = w.step()
			w.nodes[0].Quarantine = 0
		}
		require.ErrorIs(t, waiting[0], c.want, name)
	}
}

// An operator vouches for the floor of nodes without a history: they need no quarantine. A node that is lost
// afterwards does.
func TestStandaloneProvidedFloor(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{true, false} { // its vote, before it is lost
		w, floor := newWorld(t), fencing.Token(0)
		w.core.Provided, w.core.Quarantine = &floor, 0
		for i := range w.nodes {
			w.lose(i)
			w.nodes[i].Former = &State{Version: 1, Fleet: "f", Ceiling: fencing.MaxToken} // reserved
		}
		for steps := 0; w.nodes[0].Live == nil; steps++ {
			require.Less(t, steps, 4)
			w.step()
		}
		for i := range w.nodes {
			require.NotNil(t, w.nodes[i].Live, "node %d", i)
			require.Zero(t, w.nodes[i].Live.Floor)
		}
		if seen {
			w.step()
		}
		w.lose(0)
		for range 4 {
			_, waiting := w.step()
			require.ErrorContains(t, waiting[0], "quarantine for another 1m0s")
		}
	}
}

// Nodes that have never voted are initialised at once. As soon as one of them has voted, or was a voter
// before its server was restarted, the others are recovered with a floor of a quorum.
func TestNewNodesStartAtOne(t *testing.T) {
	t.Parallel()
	start := func() *world {
		w := newWorld(t)
		w.loseAll()
		w.step() // joins them
		return w
	}
	w := start()
	for range 4 {
		w.step()
	}
	for _, n := range w.nodes {
		require.NotNil(t, n.Live)
		require.Equal(t, fencing.None, n.Live.Floor)
	}
	require.False(t, NeverVoted([]Report{{Reached: true}, {}}), "a node that does not answer")
	for name, change := range map[string]func(n *Node){
		"has voted":       func(n *Node) { n.Live = &State{Version: 1, Fleet: "f", Max: 1} },
		"was a voter":     func(n *Node) { n.FormerServer, n.Former = "s0", &State{Version: 1, Fleet: "f"} },
		"has a floor":     func(n *Node) { n.FormerServer, n.Former = "0", &State{Version: 1, Fleet: "f", Max: 9, Floor: 9} },
		"does not answer": func(n *Node) { n.Report = Report{} },
		"was restarted":   func(n *Node) { n.Server += "'" },
	} {
		w := start()
		change(&w.nodes[0])
		for range 5 {
			w.step()
		}
		require.Nil(t, w.nodes[1].Live, name)
		require.Nil(t, w.nodes[2].Live, name)
	}
}

// A node of a new fleet that cannot save the floor does not vote, though a quorum of the others has it on disk: after a
// power cut it would not know that it has voted.
func TestNewNodesSaveTheirFloor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.loseAll()
	var waiting map[int]error
	for range 6 {
		_, waiting = w.step()
		w.nodes[2].Saved = false
	}
	require.NotNil(t, w.nodes[0].Live)
	require.NotNil(t, w.nodes[1].Live)
	require.Nil(t, w.nodes[2].Live)
	require.ErrorContains(t, waiting[2], "on its own disk")
}
