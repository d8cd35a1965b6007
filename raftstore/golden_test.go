package raftstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// TestGoldenSnapshotFile checks that a saved snapshot of version 1 is read and written as it
// was.
func TestGoldenSnapshotFile(t *testing.T) {
	digits, err := os.ReadFile("replica/testdata/golden-v1/state.hex")
	require.NoError(t, err)
	state, err := hex.DecodeString(strings.ReplaceAll(string(digits), "\n", ""))
	require.NoError(t, err)
	file, err := snapshotFile(state)
	require.NoError(t, err)
	saved := golden.Hex(t, "snapshot-file.hex", file)
	info, found, err := readSnapshot(bytes.NewReader(saved))
	require.NoError(t, err)
	require.Equal(t, state, found)
	require.Equal(t, fencing.Token(5<<32+4), info.LastToken)
	require.Equal(t, machine.Counts{Sessions: 2, Locks: 5, Holders: 3, Waiters: 3}, info.Counts)

	_, _, err = readSnapshot(bytes.NewReader(bytes.Replace(saved, []byte("leased snapshot 1\n"),
		[]byte("leased snapshot 2\n"), 1)))
	var newer *engine.FormatError
	require.ErrorAs(t, err, &newer)
	require.Equal(t, engine.FormatError{Format: "file of a saved snapshot", Found: 2, Newest: 1}, *newer)
}

// TestGoldenKeys checks the keys beside the log, and the form of a vote.
func TestGoldenKeys(t *testing.T) {
	store := raft.NewInmemStore()
	votes := logstore.NewVotes(store)
	require.NoError(t, votes.SetUint64([]byte("LastVoteTerm"), 7))
	require.NoError(t, votes.Set([]byte("LastVoteCand"), []byte("127.0.0.1:7421")))
	vote, err := store.Get([]byte("LastVote"))
	require.NoError(t, err)
	require.Equal(t, append(binary.BigEndian.AppendUint64(nil, 7), "127.0.0.1:7421"...), vote)
	require.Equal(t, "CatchUp Joined WentBack", strings.Join([]string{string(keyCatchUp), string(keyJoined),
		string(keyWentBack)}, " "))
}

// TestMemberStopsAtANewerEntry checks that a member whose log has an entry of a newer build
// stops at it, says why, and does so again after a restart.
func TestMemberStopsAtANewerEntry(t *testing.T) {
	c := startDisk(t, 1, DefaultLogStore, func(c *Config) { c.Fatal = func(error) {} })
	c.leader()
	entry := replica.EncodeEntry(replica.Chain{}, nil)
	entry[0] = replica.EntryVersion + 1
	_ = c.nodes[0].raft.Apply(entry, 0)
	check := func(n *Node) {
		var newer *engine.FormatError
		eventually(t, "the node stops", func() bool { return n.Failure() != nil })
		require.ErrorAs(t, n.Failure(), &newer)
		require.Equal(t, engine.FormatError{Format: "log entry", Found: 2, Newest: 1}, *newer)
	}
	check(c.nodes[0])
	_ = c.nodes[0].Close()
	check(c.restart(0))
}
