//go:build unix

package filegate

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// killingDisk kills its process before a given step. A write is two steps, so that
// the process can be killed in the middle of it.
type killingDisk struct {
	osDisk
	left *int
}

func (d killingDisk) step() {
	if *d.left--; *d.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d killingDisk) create(path string) (handle, error) {
	d.step()
	f, err := d.osDisk.create(path)
	return killingFile{f, d}, err
}

func (d killingDisk) rename(from, to string) error {
	d.step()
	return d.osDisk.rename(from, to)
}

func (d killingDisk) syncDir(path string) error {
	d.step()
	return d.osDisk.syncDir(path)
}

type killingFile struct {
	handle
	disk killingDisk
}

func (f killingFile) Write(p []byte) (int, error) {
	f.disk.step()
	n, err := f.handle.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	f.disk.step()
	m, err := f.handle.Write(p[n:])
	return n + m, err
}

func (f killingFile) Sync() error {
	f.disk.step()
	return f.handle.Sync()
}

func killedChild() {
	step, err := strconv.Atoi(os.Getenv(envStep))
	must(err)
	unlimited := 0
	gate, resource, token := inChild(killingDisk{left: &unlimited})
	unlimited = step // the steps of newGate do not count
	must(gate.Do(context.Background(), resource, token, func(file *File) error {
		return put(context.Background(), file, resource, os.Getenv(envValue))
	}))
}

// TestKilledAtEveryStep kills a real process at each step of a write and checks
// the files that it leaves.
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
			return gate.Do(t.Context(), "orders", token, func(file *File) error {
				return put(t.Context(), file, "orders", value)
			})
		}
		require.NoError(t, write(1, "the old content"))

		cmd := child(dir, "be killed", "orders", 3, envStep+"="+strconv.Itoa(step), envValue+"=the new content")
		if err := cmd.Run(); err == nil {
			survived = step
		} else {
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled() && status.Signal() == syscall.SIGKILL, "step %d: %v", step, err)
		}
		mark, err := gate.Mark(t.Context(), "orders")
		require.NoError(t, err, "step %d", step)
		content, err := os.ReadFile(gate.Path("orders"))
		require.NoError(t, err, "step %d", step)
		state := fmt.Sprint(mark, " ", string(content))
		seen[state] = true
		require.Contains(t, []string{"1 the old content", "3 the old content", "3 the new content"}, state, "step %d", step)

		require.ErrorIs(t, write(0, "no token"), fencing.ErrNoToken, "step %d", step)
		require.NoError(t, write(4, "the next holder"), "step %d: the killed writer must not block the next one", step)
		content, err = os.ReadFile(gate.Path("orders"))
		require.NoError(t, err)
		require.Equal(t, "the next holder", string(content))
	}
	require.Equal(t, steps+1, survived, "a write has this many steps")
	require.Len(t, seen, 3, "the process must have been killed in every part of the write")
}
