package raftstore

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/machine"
)

// Two replicas are told the same, and one of them gives out other tokens.
func TestReplicasThatDoDifferentThingsHaveDifferentChains(t *testing.T) {
	session := lease.NewSessionID()
	entry := encodeEntry(link{}, []machine.Command{
		&machine.OpenSession{Session: session, TTL: lease.DefaultTTL},
		&machine.Acquire{Session: session, Request: lockRequest(1, "a")},
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

// A node that goes on with the log of an earlier version finds the hashes that
// are in it.
func TestEntriesOfVersion1HaveTheirChain(t *testing.T) {
	text, err := os.ReadFile("testdata/entry.v1.hex")
	require.NoError(t, err)
	entry, err := hex.DecodeString(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	f := newFSM("n", func(err error) { t.Error(err) }, deaf{})
	f.Apply(&raft.Log{Index: 3, Data: entry})
	hash := f.position().Hash
	require.Equal(t, "5c0e8a17a50a64fcd33a186208cbebf8becb7eeac0fa62c72cde327129170341", hex.EncodeToString(hash[:]))
}
