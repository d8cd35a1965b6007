package proptest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/raftstore/machine"
)

// replica applies log entries as a node does.
type replica struct{ *machine.Machine }

func newReplica() *replica { return &replica{machine.New()} }

// apply runs one entry and returns all that it said.
func (r *replica) apply(t require.TestingT, entry []byte) (results []machine.Result, events []machine.Event) {
	batch, err := machine.Decode(entry)
	require.NoError(t, err)
	for _, c := range batch {
		result, told := r.Apply(c)
		results = append(results, result)
		events = append(events, told...)
	}
	return results, events
}

// restored is a replica that starts from the snapshot of another.
func restored(t require.TestingT, snapshot []byte) *replica {
	m, err := machine.Restore(snapshot)
	require.NoError(t, err)
	return &replica{m}
}

// TestReplicasAreEqual replays random logs. A replica that replays the whole
// log, one that is restored from its snapshot after every entry, and one that is
// restored now and then must say the same, and be equal byte for byte after
// every entry.
func TestReplicasAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript(t, newPair(newCases()), pick(t, tastes, "taste"))
		first, always, sometimes := newReplica(), newReplica(), newReplica()
		s.machine = first.Machine // the script looks at it to make up the next batch
		replay := func(t *rapid.T, batch []machine.Command) {
			entry := machine.Encode(batch...)
			results, events := first.apply(t, entry)
			snapshot := first.Snapshot()
			if coin.Draw(t, "restore") {
				sometimes = restored(t, sometimes.Snapshot())
			}
			for _, other := range []*replica{always, sometimes} {
				otherResults, otherEvents := other.apply(t, entry)
				require.Equal(t, results, otherResults)
				require.Equal(t, events, otherEvents)
				require.True(t, bytes.Equal(snapshot, other.Snapshot()), "the replicas have parted")
			}
			always = restored(t, snapshot)
			require.True(t, bytes.Equal(snapshot, always.Snapshot()), "restored, it is another")
		}
		replay(t, s.begin(t))
		t.Repeat(map[string]func(*rapid.T){"batch": func(t *rapid.T) { replay(t, s.batch(t)) }})
	})
}

// TestReplayFromAnyPoint restores at one point and replays all that follows.
func TestReplayFromAnyPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript(t, newPair(newCases()), pick(t, tastes, "taste"))
		var snapshots [][]byte
		var entries [][]byte
		run := func(batch []machine.Command) {
			snapshots = append(snapshots, s.machine.Snapshot())
			entries = append(entries, machine.Encode(batch...))
			(&replica{s.machine}).apply(t, entries[len(entries)-1])
		}
		run(s.begin(t))
		t.Repeat(map[string]func(*rapid.T){"batch": func(t *rapid.T) { run(s.batch(t)) }})

		from := rapid.IntRange(0, len(entries)-1).Draw(t, "from")
		late := restored(t, snapshots[from])
		for _, entry := range entries[from:] {
			late.apply(t, entry)
		}
		require.True(t, bytes.Equal(s.machine.Snapshot(), late.Snapshot()), "the replica has parted from entry %d on", from)
	})
}
