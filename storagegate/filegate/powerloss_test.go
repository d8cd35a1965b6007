package filegate

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// action is one recorded change on disk.
type action struct {
	kind     string // create, write, sync, rename, syncdir
	path, to string
	content  string
}

// recorder records every change on disk.
type recorder struct {
	osDisk
	actions *[]action
}

func (w recorder) create(path string) (handle, error) {
	*w.actions = append(*w.actions, action{kind: "create", path: path})
	f, err := w.osDisk.create(path)
	return recorderFile{f, w, path}, err
}

func (w recorder) rename(from, to string) error {
	*w.actions = append(*w.actions, action{kind: "rename", path: from, to: to})
	return w.osDisk.rename(from, to)
}

func (w recorder) syncDir(path string) error {
	*w.actions = append(*w.actions, action{kind: "syncdir", path: path})
	return w.osDisk.syncDir(path)
}

type recorderFile struct {
	handle
	recorder recorder
	path     string
}

func (f recorderFile) Write(p []byte) (int, error) {
	*f.recorder.actions = append(*f.recorder.actions, action{kind: "write", path: f.path, content: string(p)})
	return f.handle.Write(p)
}

func (f recorderFile) Sync() error {
	*f.recorder.actions = append(*f.recorder.actions, action{kind: "sync", path: f.path})
	return f.handle.Sync()
}

// recorded returns the changes of a write with token 3 to a file that was written
// with token 1, and the paths of the data and of its mark.
func recorded(t *testing.T) (actions []action, data, mark string) {
	t.Helper()
	gate, err := newGate(filepath.Join(t.TempDir(), "files"), fencing.Rule{}, recorder{actions: &actions})
	require.NoError(t, err)
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "orders", 3, func(file *File) error {
		return put(t.Context(), file, "orders", "new")
	}))
	return actions, gate.Path("orders"), gate.internal("orders", ".mark")
}

// The model of a power loss: content that was not synced may be complete, partial
// or missing; a name that was created or renamed may be old or new, independently
// of others, until its folder is synced.

type inode struct {
	content string
	synced  bool
}

type naming struct { // a change of a folder that is not durable yet
	name, gone string
	target     *inode
}

type modelDisk struct {
	names   map[string]*inode // durable
	now     map[string]*inode // as running processes see it
	pending []naming
}

func (d *modelDisk) apply(a action) {
	switch a.kind {
	case "create":
		if f := d.now[a.path]; f != nil { // truncated in place
			f.content, f.synced = "", false
			return
		}
		f := &inode{}
		d.now[a.path] = f
		d.pending = append(d.pending, naming{name: a.path, target: f})
	case "write":
		d.now[a.path].content += a.content
		d.now[a.path].synced = false
	case "sync":
		d.now[a.path].synced = true
	case "rename":
		f := d.now[a.path]
		delete(d.now, a.path)
		d.now[a.to] = f
		d.pending = append(d.pending, naming{name: a.to, gone: a.path, target: f})
	case "syncdir":
		d.pending = slices.DeleteFunc(d.pending, func(n naming) bool {
			if filepath.Dir(n.name) != a.path {
				return false
			}
			d.commit(d.names, n)
			return true
		})
	}
}

func (*modelDisk) commit(names map[string]*inode, n naming) {
	delete(names, n.gone)
	names[n.name] = n.target
}

// outcomes returns every pair of contents that a power loss can leave.
func (d *modelDisk) outcomes(mark, data string) (all [][2]string) {
	for choice := range 1 << len(d.pending) {
		names := map[string]*inode{}
		for name, f := range d.names {
			names[name] = f
		}
		for i, n := range d.pending {
			if choice&(1<<i) != 0 {
				d.commit(names, n)
			}
		}
		for _, m := range names[mark].remains() {
			for _, c := range names[data].remains() {
				all = append(all, [2]string{m, c})
			}
		}
	}
	return all
}

func (f *inode) remains() []string {
	if f == nil {
		return []string{"missing"}
	}
	if f.synced {
		return []string{f.content}
	}
	return []string{"", f.content[:len(f.content)/2], f.content}
}

const (
	oldMark, newMark = "1\norders\n", "3\norders\n"
	oldData, newData = "old", "new"
)

// survives returns an error if a power loss at some moment violates a guarantee of
// the gate.
func survives(actions []action, mark, data string) error {
	m, c := &inode{oldMark, true}, &inode{oldData, true}
	d := &modelDisk{names: map[string]*inode{mark: m, data: c}, now: map[string]*inode{mark: m, data: c}}
	for i := 0; ; i++ {
		for _, o := range d.outcomes(mark, data) {
			switch {
			case o[0] != oldMark && o[0] != newMark:
				return fmt.Errorf("after %d actions the mark can be %q", i, o[0])
			case o[1] != oldData && o[1] != newData:
				return fmt.Errorf("after %d actions the data can be %q", i, o[1])
			case o[0] == oldMark && o[1] == newData:
				return fmt.Errorf("after %d actions the data can be newer than its mark", i)
			case i == len(actions) && (o[0] != newMark || o[1] != newData):
				return fmt.Errorf("the write was confirmed, but can be lost: %q", o)
			}
		}
		if i == len(actions) {
			return nil
		}
		d.apply(actions[i])
	}
}

func TestPowerLossAtEveryStep(t *testing.T) {
	actions, data, mark := recorded(t)
	require.NoError(t, survives(actions, mark, data), "%v", actions)
}

// TestEveryStepIsRequired removes one step of the recorded write at a time. The
// model must detect each.
func TestEveryStepIsRequired(t *testing.T) {
	actions, data, mark := recorded(t)
	for i, a := range actions {
		if a.kind == "create" || a.kind == "write" {
			continue // the model cannot replay a write without them
		}
		without := slices.Delete(slices.Clone(actions), i, i+1)
		require.Error(t, survives(without, mark, data), "without %v", a)
	}
	inPlace := []action{
		{kind: "create", path: data}, {kind: "write", path: data, content: newData}, {kind: "sync", path: data},
	}
	raise := slices.IndexFunc(actions, func(a action) bool { return a.kind == "syncdir" })
	markFirst := slices.Concat(actions[3:raise+1], inPlace)
	require.Error(t, survives(markFirst, mark, data), "without a temporary file and a rename")
}

// The process that raised the mark may have crashed before the mark was on disk.
// The next writer with the same token must make it durable first.
func TestMarkOfAnotherProcessIsMadeDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	other, err := New(dir, fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, other.Enter(t.Context(), "orders", 3))

	var actions []action
	gate, err := newGate(dir, fencing.Rule{}, recorder{actions: &actions})
	require.NoError(t, err)
	write := func(file *File) error { return put(t.Context(), file, "orders", "new") }
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "orders", 3, write))
	synced := slices.IndexFunc(actions, func(a action) bool {
		return a.kind == "syncdir" && a.path == filepath.Join(dir, marksFolder)
	})
	replaced := slices.IndexFunc(actions, func(a action) bool { return a.kind == "rename" })
	require.GreaterOrEqual(t, synced, 0, "%v", actions)
	require.Less(t, synced, replaced, "%v", actions)

	first := len(actions)
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "orders", 3, write))
	require.Len(t, actions, first-1, "a mark that is known to be durable is not synced again")

	require.NoError(t, gate.Enter(t.Context(), "orders", 9))
	require.NoError(t, other.Reset(t.Context(), "orders", 9, 5))
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "orders", 5, write))
	require.Len(t, actions, first, "the larger mark was durable, not the one after the reset")
}
