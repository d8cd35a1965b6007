package raftstore

import (
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Two replicas are told the same, and one of them gives out other tokens.
func TestReplicasThatDoDifferentThingsHaveDifferentChains(t *testing.T) {
	session := engine.NewSessionID()
	entry := encodeEntry(link{}, []machine.Command{
		&machine.OpenSession{Session: session, TTL: engine.DefaultTTL},
		&machine.Acquire{Session: session, Incarnation: 1, Request: lockRequest(1, "a")},
	})
	replica := func() *fsm { return newFSM("n", func(err error) { t.Error(err) }, deaf{}) }
	run := func(f *fsm) Chain {
		f.Apply(&raft.Log{Index: 3, Data: entry})
		return f.position()
	}
	sound, twin, faulty := replica(), replica(), replica()
	faulty.machine.Apply(&machine.RaiseFloor{By: 5})
	require.Equal(t, run(sound), run(twin))
	require.NotEqual(t, sound.position(), run(faulty))
}
