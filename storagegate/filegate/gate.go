package filegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// marksFolder is the folder of marks, locks and temporary files. No resource
// has this name: a leading dot is escaped.
const marksFolder = ".leased"

// Gate gates the files of one folder. Any number of processes may open gates on
// the same folder.
type Gate struct {
	storagegate.Monitor
	dir  string
	rule fencing.Rule
	disk disk
	// durable has, by resource, the token of a mark that is known to be on disk.
	durable sync.Map
}

var _ storagegate.Gate[*File] = (*Gate)(nil)

// New returns a gate over the files in dir, and makes the folder if it does not
// exist. The zero Rule has no bound on the jump.
func New(dir string, rule fencing.Rule) (*Gate, error) {
	return newGate(dir, rule, osDisk{})
}

func newGate(dir string, rule fencing.Rule, d disk) (*Gate, error) {
	if err := os.MkdirAll(filepath.Join(dir, marksFolder), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the marks: %w", err)
	}
	// The folders themselves must be on disk before anything in them is.
	for _, folder := range []string{dir, filepath.Dir(filepath.Clean(dir))} {
		if err := d.syncDir(folder); err != nil {
			return nil, fmt.Errorf("make the folder of the marks: %w", err)
		}
	}
	return &Gate{dir: dir, rule: rule, disk: d}, nil
}

// Path is where the file of the resource is. Readers may open it at any time,
// and find the whole content of one write.
func (g *Gate) Path(resource fencing.Resource) string {
	return filepath.Join(g.dir, escape(resource))
}

// beside is the path of a file that belongs to the resource.
func (g *Gate) beside(resource fencing.Resource, kind string) string {
	return filepath.Join(g.dir, marksFolder, escape(resource)+kind)
}

// Do implements storagegate.Gate. What write puts into the file replaces the
// content when Do returns nil; if write puts in nothing, the content stays. If
// the disk fails after the mark was raised, Do returns the error, the content
// is as it was and the mark stays raised.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(file *File) error) error {
	if err := valid(resource, token); err != nil {
		return err
	}
	held, err := lock(ctx, g.beside(resource, ".lock"))
	if err != nil {
		return err
	}
	defer held.release()
	return g.Record(resource, token, g.locked(ctx, held, resource, token, write))
}

func (g *Gate) locked(ctx context.Context, lock *held, resource fencing.Resource, token fencing.Token, write func(file *File) error) error {
	mark, err := g.readMark(resource)
	if err != nil {
		return err
	}
	if err := g.rule.Admit(resource, mark, token); err != nil {
		return err
	}
	file := &File{disk: g.disk, path: g.Path(resource), temporary: g.beside(resource, ".new")}
	defer file.close()
	if err := write(file); err != nil {
		return err
	}
	if err := file.finish(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if mark, err = g.again(lock, resource, token); err != nil {
		return err
	}
	switch {
	case token > mark:
		if err := g.raise(resource, token); err != nil {
			return err
		}
	case token != fencing.None && !g.isDurable(resource, token):
		// Who raised it may have died before the name of the mark was on disk.
		if err := g.disk.syncDir(filepath.Join(g.dir, marksFolder)); err != nil {
			return fmt.Errorf("make the mark of %q durable: %w", string(resource), err)
		}
		g.durable.Store(resource, token)
	}
	return file.replace()
}

// again checks before the first change what was checked before the write, which
// may have taken long: a lock protects nothing once its file was removed.
func (g *Gate) again(lock *held, resource fencing.Resource, token fencing.Token) (mark fencing.Token, err error) {
	mark, err = g.readMark(resource)
	if err == nil {
		err = g.rule.Admit(resource, mark, token)
	}
	if err == nil {
		err = lock.still()
	}
	return mark, err
}

// isDurable reports whether this gate knows that the mark is on disk.
func (g *Gate) isDurable(resource fencing.Resource, token fencing.Token) bool {
	known, ok := g.durable.Load(resource)
	return ok && known.(fencing.Token) >= token
}

// raise stores the mark, durably, before the data that it stands for.
func (g *Gate) raise(resource fencing.Resource, token fencing.Token) error {
	temporary := g.beside(resource, ".newmark")
	text := token.String() + "\n" + string(resource) + "\n"
	if err := writeSynced(g.disk, temporary, []byte(text)); err != nil {
		return fmt.Errorf("raise the mark of %q: %w", string(resource), err)
	}
	if err := g.disk.rename(temporary, g.beside(resource, ".mark")); err != nil {
		return fmt.Errorf("raise the mark of %q: %w", string(resource), err)
	}
	if err := g.disk.syncDir(filepath.Join(g.dir, marksFolder)); err != nil {
		return fmt.Errorf("raise the mark of %q: %w", string(resource), err)
	}
	g.durable.Store(resource, token)
	return nil
}

// Enter implements storagegate.Gate.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token != fencing.None {
		return g.Do(ctx, resource, token, func(*File) error { return nil })
	}
	mark, err := g.Mark(ctx, resource)
	if err != nil {
		return err
	}
	return g.Record(resource, token, g.rule.Enter(resource, mark, token))
}

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	if err := ctx.Err(); err != nil {
		return fencing.None, err
	}
	return g.readMark(resource)
}

// readMark reads the two lines of a mark: the token and the name. The name
// shows an operator whose mark it is, and a file that was moved here.
func (g *Gate) readMark(resource fencing.Resource) (fencing.Token, error) {
	path := g.beside(resource, ".mark")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fencing.None, nil
	}
	if err != nil {
		return fencing.None, fmt.Errorf("read the mark of %q: %w", string(resource), err)
	}
	return parseMark(path, string(text), resource)
}

// valid checks what no mark has to be read for.
func valid(resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	_, err := token.Value()
	return err
}
