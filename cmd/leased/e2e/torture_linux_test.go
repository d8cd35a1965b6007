package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/torture"
)

// left are the command lines of what a torture has left behind.
func left(t *testing.T) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, path := range lines {
		line, err := os.ReadFile(path) // it may be gone by now
		if words := string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))); err == nil && strings.Contains(words, leased) {
			found = append(found, words)
		}
	}
	return found
}

func TestTorture(t *testing.T) {
	dir := t.TempDir()
	report, picture := filepath.Join(dir, "report.json"), filepath.Join(dir, "picture.html")
	out := must(t, nil, leased, "torture", "--duration=20s", "--seed=7", "--workers=6", "--report="+report, "--picture="+picture)
	require.Contains(t, out, "0 violations")
	require.Empty(t, left(t))

	text, err := os.ReadFile(report)
	require.NoError(t, err)
	var r torture.Result
	require.NoError(t, json.Unmarshal(text, &r))
	require.Empty(t, r.Violations)
	require.Equal(t, []uint64{7}, r.Seeds)
	require.Positive(t, r.Modes["correctness"].Grants)
	require.Positive(t, r.Modes["efficiency"].Grants)
	require.Positive(t, r.Modes["switched"].Grants)
	require.Positive(t, r.Switches.Done, "changes of mode")
	require.Positive(t, r.Writes)
	kinds := map[string]int{}
	for kind, n := range r.Faults {
		words := strings.Fields(kind)
		kinds[words[len(words)-1]] += n
	}
	require.Positive(t, kinds["killed"], "%v", r.Faults)
	require.Positive(t, kinds["paused"], "%v", r.Faults)
	page, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(page), "<!DOCTYPE html>")
}

// Ctrl-C on a terminal, which every process of its group sees, ends it and all
// that it has started.
func TestTortureIsInterrupted(t *testing.T) {
	p, person := onTerminal(t, nil, leased, "torture", "--duration=1h")
	p.says("operations")
	_, err := person.Write([]byte{3})
	require.NoError(t, err)
	require.Equal(t, 128+int(syscall.SIGINT), p.code(), "%s", &p.output)
	require.Empty(t, left(t))
}
