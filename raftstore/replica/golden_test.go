package replica

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// goldenCommands returns the commands in the golden file of the machine.
func goldenCommands(t *testing.T) (commands []machine.Command) {
	t.Helper()
	text, err := os.ReadFile("../machine/testdata/golden-v1/commands.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		_, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		data, err := hex.DecodeString(digits)
		require.NoError(t, err)
		one, err := machine.Decode(data)
		require.NoError(t, err)
		commands = append(commands, one...)
	}
	return commands
}

// TestGoldenLog checks that a log of version 1 leads to the same chain of hashes on every
// build: members of different builds compare their hashes during an upgrade.
func TestGoldenLog(t *testing.T) {
	f := New("n", func(err error) { t.Error(err) }, silent{})
	apply := func(index uint64, data []byte) string {
		f.Apply(&raft.Log{Index: index, Data: data})
		return f.Chain().String()
	}
	var text strings.Builder
	for i, c := range goldenCommands(t) {
		data := EncodeEntry(f.Chain(), []machine.Command{c})
		fmt.Fprintf(&text, "%d %x %s\n", i+1, data, apply(uint64(i+1), data))
	}
	want := golden.Text(t, "log.txt", text.String())
	state := golden.Hex(t, "state.hex", EncodeState(f.Chain(), f.machine))

	f = New("n", func(err error) { t.Error(err) }, silent{})
	for line := range strings.Lines(want) {
		var index uint64
		var data []byte
		var chain string
		_, err := fmt.Sscanf(line, "%d %x %s", &index, &data, &chain)
		require.NoError(t, err)
		require.Equal(t, chain, apply(index, data), "entry %d", index)
	}
	chain, m, err := DecodeState(state)
	require.NoError(t, err)
	require.Equal(t, f.Chain(), chain)
	require.Equal(t, f.machine.Snapshot(), m.Snapshot())
	require.Equal(t, state, EncodeState(chain, m))
}

// TestNewerEntryStopsTheNode checks that a node neither skips nor misreads an entry of a newer
// build.
func TestNewerEntryStopsTheNode(t *testing.T) {
	for name, at := range map[string]int{"log entry": 0, "batch of commands": 1 + 1 + linkSize} {
		t.Run(name, func(t *testing.T) {
			entry := EncodeEntry(Chain{}, []machine.Command{&machine.Lead{}})
			entry[at]++
			var failed error
			f := New("n", func(err error) { failed = err }, silent{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				f.Apply(&raft.Log{Index: 7, Data: entry})
				t.Error("the entry was applied")
			}()
			<-done
			var newer *engine.FormatError
			require.ErrorAs(t, failed, &newer)
			require.Equal(t, engine.FormatError{Format: name, Found: 2, Newest: 1}, *newer)
			require.ErrorContains(t, failed, "apply entry 7: ")
			require.ErrorContains(t, failed, "upgrade to a build that reads version 2")
			require.Zero(t, f.Chain().Index)
			require.Zero(t, f.machine.Generation())
		})
	}
}

// TestNewerSnapshotStopsTheNode checks the same for a snapshot.
func TestNewerSnapshotStopsTheNode(t *testing.T) {
	for name, at := range map[string]int{"state of a snapshot": 0, "state of the machine": 1 + len(Chain{}.Hash) + 8} {
		t.Run(name, func(t *testing.T) {
			state := EncodeState(Chain{Index: 5}, machine.New())
			state[at]++
			var failed error
			f := New("n", func(err error) { failed = err }, silent{})
			require.Error(t, f.Restore(io.NopCloser(bytes.NewReader(state))))
			var newer *engine.FormatError
			require.ErrorAs(t, failed, &newer)
			require.Equal(t, engine.FormatError{Format: name, Found: 2, Newest: 1}, *newer)
			require.Zero(t, f.Chain().Index)
		})
	}
}
