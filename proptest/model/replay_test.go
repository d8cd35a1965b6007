package model_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/raftstore/machine"
)

// replica applies log entries like a node.
type replica struct{ *machine.Machine }

func newReplica() *replica { return &replica{machine.New()} }

// apply applies one entry and returns its results and events.
func (r *replica) apply(t require.TestingT, entry []byte) (results []machine.Result, events []machine.Event) {
	batch, err := machine.Decode(entry)
	require.NoError(t, err)
	for _, c := range batch {
		result, emitted := r.Apply(c)
		results = append(results, result)
		events = append(events, emitted...)
	}
	return results, events
}

// restored returns a replica that starts from a snapshot.
func restored(t require.TestingT, snapshot []byte) *replica {
	m, err := machine.Restore(snapshot)
	require.NoError(t, err)
	return &replica{m}
}

// TestReplicasAreEqual replays random logs. A replica that replays the whole log, one
// that is restored from its snapshot after every entry, and one that is restored
// sometimes must return equal results and events, and have equal snapshots after every
// entry.
func TestReplicasAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGenerator(t, newComparison(newCases()), pick(t, profiles, "profile"))
		first, always, sometimes := newReplica(), newReplica(), newReplica()
		g.machine = first.Machine // the generator inspects it to draw the next batch
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
				require.True(t, bytes.Equal(snapshot, other.Snapshot()), "the replicas have diverged")
			}
			always = restored(t, snapshot)
			require.True(t, bytes.Equal(snapshot, always.Snapshot()), "the restored replica has another snapshot")
		}
		replay(t, g.begin(t))
		t.Repeat(map[string]func(*rapid.T){"batch": func(t *rapid.T) { replay(t, g.batch(t)) }})
	})
}

// TestReplayFromAnyPoint restores a snapshot of any entry and replays the rest.
func TestReplayFromAnyPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGenerator(t, newComparison(newCases()), pick(t, profiles, "profile"))
		var snapshots [][]byte
		var entries [][]byte
		run := func(batch []machine.Command) {
			snapshots = append(snapshots, g.machine.Snapshot())
			entries = append(entries, machine.Encode(batch...))
			(&replica{g.machine}).apply(t, entries[len(entries)-1])
		}
		run(g.begin(t))
		t.Repeat(map[string]func(*rapid.T){"batch": func(t *rapid.T) { run(g.batch(t)) }})

		from := rapid.IntRange(0, len(entries)-1).Draw(t, "from")
		late := restored(t, snapshots[from])
		for _, entry := range entries[from:] {
			late.apply(t, entry)
		}
		require.True(t, bytes.Equal(g.machine.Snapshot(), late.Snapshot()), "the replica restored at entry %d has diverged",
			from)
	})
}
