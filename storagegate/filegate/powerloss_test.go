package filegate

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// A model of what a loss of power leaves, after some of the actions of a write:
// content that was not synced may be there, in part or not at all; a name that
// was made or moved may be old or new, each on its own, until its folder is
// synced.

type inode struct {
	content string
	synced  bool
}

type naming struct { // a change of a folder that may still get lost
	name, gone string
	target     *inode
}

type afterLoss struct {
	names   map[string]*inode // durable
	now     map[string]*inode // as the running system sees it
	pending []naming
}

func (d *afterLoss) apply(a action) {
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
			d.settle(d.names, n)
			return true
		})
	}
}

func (*afterLoss) settle(names map[string]*inode, n naming) {
	delete(names, n.gone)
	names[n.name] = n.target
}

// outcomes lists every pair of contents that a loss of power may leave.
func (d *afterLoss) outcomes(mark, data string) (all [][2]string) {
	for choice := range 1 << len(d.pending) {
		names := map[string]*inode{}
		for name, f := range d.names {
			names[name] = f
		}
		for i, n := range d.pending {
			if choice&(1<<i) != 0 {
				d.settle(names, n)
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
	oldMark, newMark = "1\ndoor\n", "3\ndoor\n"
	oldData, newData = "old", "new"
)

// survives reports the first outcome, of a loss of power at any moment, that
// breaks the promise of the gate.
func survives(actions []action, mark, data string) error {
	m, c := &inode{oldMark, true}, &inode{oldData, true}
	d := &afterLoss{names: map[string]*inode{mark: m, data: c}, now: map[string]*inode{mark: m, data: c}}
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
				return fmt.Errorf("the write was confirmed, and %q can be lost", o)
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

// TestEveryStepIsNeeded leaves steps out of the recorded write: the model must
// notice each.
func TestEveryStepIsNeeded(t *testing.T) {
	actions, data, mark := recorded(t)
	for i, a := range actions {
		if a.kind == "create" || a.kind == "write" {
			continue // nothing to write without them
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

// Whoever raised the mark may have died before its name was on disk. The next
// one with the same token finds it raised, and must not take that for durable.
func TestAMarkOfAnotherIsMadeDurableFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	other, err := New(dir, fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, other.Enter(t.Context(), "door", 3))

	var actions []action
	gate, err := newGate(dir, fencing.Rule{}, witness{actions: &actions})
	require.NoError(t, err)
	write := func(file *File) error { return put(t.Context(), file, "door", "new") }
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "door", 3, write))
	synced := slices.IndexFunc(actions, func(a action) bool { return a.kind == "syncdir" && a.path == filepath.Join(dir, marksFolder) })
	replaced := slices.IndexFunc(actions, func(a action) bool { return a.kind == "rename" })
	require.GreaterOrEqual(t, synced, 0, "%v", actions)
	require.Less(t, synced, replaced, "%v", actions)

	first := len(actions)
	actions = nil
	require.NoError(t, gate.Do(t.Context(), "door", 3, write))
	require.Len(t, actions, first-1, "known to be durable, it costs nothing more")
}
