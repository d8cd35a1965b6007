//go:build unix

package filegate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// mortal is a disk whose process is killed before a given step. A write is two
// steps, so that it can be cut in half.
type mortal struct {
	osDisk
	left *int
}

func (m mortal) step() {
	if *m.left--; *m.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m mortal) create(path string) (handle, error) {
	m.step()
	f, err := m.osDisk.create(path)
	return mortalFile{f, m}, err
}

func (m mortal) rename(from, to string) error {
	m.step()
	return m.osDisk.rename(from, to)
}

func (m mortal) syncDir(path string) error {
	m.step()
	return m.osDisk.syncDir(path)
}

type mortalFile struct {
	handle
	mortal mortal
}

func (f mortalFile) Write(p []byte) (int, error) {
	f.mortal.step()
	n, err := f.handle.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	f.mortal.step()
	m, err := f.handle.Write(p[n:])
	return n + m, err
}

func (f mortalFile) Sync() error {
	f.mortal.step()
	return f.handle.Sync()
}

func childDies() {
	step, err := strconv.Atoi(os.Getenv(envStep))
	must(err)
	unlimited := 0
	gate, resource, token := inChild(mortal{left: &unlimited})
	unlimited = step // opening the gate does not count
	must(gate.Do(context.Background(), resource, token, func(file *File) error {
		return put(context.Background(), file, resource, os.Getenv(envValue))
	}))
}

// TestKilledAtEveryStep kills a real process at each step of a write, and looks
// at what it leaves.
func TestKilledAtEveryStep(t *testing.T) {
	const steps = 12
	seen := map[string]bool{}
	survived := 0
	for step := 1; survived == 0; step++ {
		require.LessOrEqual(t, step, steps+1)
		dir := t.TempDir()
		gate, err := New(dir, fencing.Rule{})
		require.NoError(t, err)
		write := func(token fencing.Token, value string) error {
			return gate.Do(t.Context(), "door", token, func(file *File) error { return put(t.Context(), file, "door", value) })
		}
		require.NoError(t, write(1, "the old content"))

		cmd := child(dir, "die", "door", 3, envStep+"="+strconv.Itoa(step), envValue+"=the new content")
		if err := cmd.Run(); err == nil {
			survived = step
		} else {
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled() && status.Signal() == syscall.SIGKILL, "step %d: %v", step, err)
		}
		mark, err := gate.Mark(t.Context(), "door")
		require.NoError(t, err, "step %d", step)
		content, err := os.ReadFile(gate.Path("door"))
		require.NoError(t, err, "step %d", step)
		state := fmt.Sprint(mark, " ", string(content))
		seen[state] = true
		require.Contains(t, []string{"1 the old content", "3 the old content", "3 the new content"}, state, "step %d", step)

		require.ErrorIs(t, write(0, "no token"), fencing.ErrNoToken, "step %d", step)
		require.NoError(t, write(4, "the next holder"), "step %d: the dead writer must leave nothing in the way", step)
		content, err = os.ReadFile(gate.Path("door"))
		require.NoError(t, err)
		require.Equal(t, "the next holder", string(content))
	}
	require.Equal(t, steps+1, survived, "a write has this many steps")
	require.Len(t, seen, 3, "the kills must have hit every part of the write")
}

// What a write does to the disk, as a test has seen it.
type action struct {
	kind     string // create, write, sync, rename, syncdir
	path, to string
	content  string
}

// witness writes down every step, in order.
type witness struct {
	osDisk
	actions *[]action
}

func (w witness) create(path string) (handle, error) {
	*w.actions = append(*w.actions, action{kind: "create", path: path})
	f, err := w.osDisk.create(path)
	return witnessFile{f, w, path}, err
}

func (w witness) rename(from, to string) error {
	*w.actions = append(*w.actions, action{kind: "rename", path: from, to: to})
	return w.osDisk.rename(from, to)
}

func (w witness) syncDir(path string) error {
	*w.actions = append(*w.actions, action{kind: "syncdir", path: path})
	return w.osDisk.syncDir(path)
}

type witnessFile struct {
	handle
	witness witness
	path    string
}

func (f witnessFile) Write(p []byte) (int, error) {
	*f.witness.actions = append(*f.witness.actions, action{kind: "write", path: f.path, content: string(p)})
	return f.handle.Write(p)
}

func (f witnessFile) Sync() error {
	*f.witness.actions = append(*f.witness.actions, action{kind: "sync", path: f.path})
	return f.handle.Sync()
}

// recorded returns the steps of a write under token 3 over a content that was
// written under token 1, and the paths of the data and of its mark.
func recorded(t *testing.T) (actions []action, data, mark string) {
	t.Helper()
	gate, err := newGate(filepath.Join(t.TempDir(), "files"), fencing.Rule{}, witness{actions: &actions})
	require.NoError(t, err)
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "door", 3, func(file *File) error { return put(t.Context(), file, "door", "new") }))
	return actions, gate.Path("door"), gate.beside("door", ".mark")
}
