package raftstore

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// FuzzSnapshotFile checks that the file of a snapshot is accepted only as a whole, and
// that a restore of it ends all leases and raises the tokens. The second target of the
// fuzzer is a state inside a file that is otherwise in order, since it cannot guess a
// checksum.
func FuzzSnapshotFile(f *testing.F) {
	m := machine.New()
	m.Apply(&machine.Lead{})
	m.Apply(&machine.OpenSession{Session: engine.SessionID{1}, TTL: time.Second})
	state := replica.EncodeState(replica.Chain{Index: 5}, m)
	file, err := snapshotFile(state)
	require.NoError(f, err)
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Add(append(bytes.Clone(file), 0))
	f.Add(state)
	f.Add([]byte(snapshotMagic + "1\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		wrapped, err := snapshotFile(data)
		if err != nil { // the state is malformed
			wrapped = data
		}
		info, state, err := readSnapshot(bytes.NewReader(wrapped))
		if err != nil {
			require.ErrorIs(t, err, ErrSnapshot)
			return
		}
		again, err := snapshotFile(state)
		require.NoError(t, err)
		_, _, err = readSnapshot(bytes.NewReader(append(again, 0)))
		require.Error(t, err, "trailing bytes")
		restored, floor, err := startOver(state, machine.Present{}, time.Time{})
		if err != nil {
			return // the tokens are exhausted
		}
		_, after, err := replica.DecodeState(restored)
		require.NoError(t, err)
		require.GreaterOrEqual(t, floor, info.LastToken+fencing.FloorStep)
		require.Zero(t, after.Count().Sessions)
		require.Zero(t, after.Count().Holders)
	})
}

// snapshotFile returns the file of a snapshot with this state.
func snapshotFile(state []byte) ([]byte, error) {
	info, err := describe(state)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(info)
	return bytes.Join([][]byte{[]byte(snapshotMagic + "1\n"), header, []byte("\n"), state}, nil), err
}
