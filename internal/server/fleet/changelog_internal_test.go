package fleet

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/logtest"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// The leader logs each change of a node once, although it looks at the nodes every second.
func TestNodesAreLoggedOnce(t *testing.T) {
	log := logtest.New(slog.LevelInfo)
	fleet := engine.Fleet{Namespace: "test", MaxTTL: time.Minute, Addresses: []string{"a:1"}}
	state := machine.Efficiency{Version: 3, Fleet: fleet, Ready: true, Ceiling: 100, Lives: []machine.Life{{Name: "s.j"}}}
	k := &Keeper{logger: log.Logger(), nodes: map[string]nodeState{}}
	look := func(n recovery.Node) {
		for range 3 {
			k.report(state, []recovery.Node{n})
		}
	}
	voting := recovery.Node{Report: recovery.Report{Reached: true, Server: "s", Live: &recovery.State{Join: "j",
		Version: 3, Fleet: fleet.Fingerprint(), Floor: 7, Ceiling: 100}}}
	lost := recovery.Node{Report: recovery.Report{Reached: true}}
	waiting := recovery.Node{Report: recovery.Report{Reached: true}, Joining: "nonce", Quarantine: time.Minute}
	look(voting)
	look(recovery.Node{})
	look(voting)
	require.Empty(t, log.Lines(""), "a new leader, and a node that it could not reach for a moment")
	look(lost)
	look(waiting)
	look(recovery.Node{})
	look(waiting)
	look(voting)
	require.Len(t, log.Lines(""), 3)
	require.Equal(t, slog.LevelWarn, log.Once(t, "Redis node is empty and does not vote").Level)
	require.Equal(t, "1m0s", log.Once(t, "Redis node is in quarantine").Values["left"])
	again := log.Once(t, "Redis node votes again")
	require.Equal(t, "a:1", again.Values["node"])
	require.Equal(t, "7", again.Values["floor"])
	require.Equal(t, "true", again.Values["quarantined"])
}

// A step that fails again and again is logged once for each reason.
func TestRepeatedFailuresAreLoggedOnce(t *testing.T) {
	log := logtest.New(slog.LevelInfo)
	var f failureLog
	try := func(node string, err error) {
		f.log(log.Logger(), "cannot advance a Redis node", node, err, "node", node)
	}
	for range 5 {
		try("a:1", errors.New("timeout"))
		try("b:1", errors.New("timeout"))
	}
	require.Len(t, log.Lines(""), 2)
	try("a:1", errors.New("refused"))
	require.Len(t, log.Lines(""), 3)
	try("a:1", nil)
	try("a:1", errors.New("refused"))
	require.Len(t, log.Lines(""), 4)
}
