package filegate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// marksFolder contains marks, locks and temporary files. No resource has this
// file name, because a leading dot is escaped.
const marksFolder = ".leased"

// Gate gates the files of one folder. Any number of processes can open a Gate on
// the same folder.
//
// The data that the write of Do writes to its File replaces the content. If it
// writes nothing, the content stays. If the disk fails after the mark was raised,
// Do returns the error, the content is unchanged and the mark stays raised.
type Gate struct {
	*storagegate.Base[*File]
	dir  string
	rule fencing.Rule
	disk disk
	// durable maps a resource to the mark that is known to be on disk.
	durable sync.Map
}

// New returns a gate for the files in dir and creates the folder if it is
// missing.
func New(dir string, rule fencing.Rule) (*Gate, error) {
	return newGate(dir, rule, osDisk{})
}

// NewPrivate returns a gate like New whose new files only their owner can read.
func NewPrivate(dir string, rule fencing.Rule) (*Gate, error) {
	return newGate(dir, rule, osDisk{umask: 0o077})
}

func newGate(dir string, rule fencing.Rule, d disk) (*Gate, error) {
	if err := os.MkdirAll(filepath.Join(dir, marksFolder), 0o755); err != nil {
		return nil, fmt.Errorf("create the folder for marks: %w", err)
	}
	// The folders must be on disk before their content.
	for _, folder := range []string{dir, filepath.Dir(filepath.Clean(dir))} {
		if err := d.syncDir(folder); err != nil {
			return nil, fmt.Errorf("create the folder for marks: %w", err)
		}
	}
	g := &Gate{dir: dir, rule: rule, disk: d}
	g.Base = storagegate.NewBase(storagegate.Steps[*File]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g, nil
}

// Path returns the path of the resource's file. Readers can open it at any time
// and find the complete content of one write.
func (g *Gate) Path(resource fencing.Resource) string {
	return filepath.Join(g.dir, storagegate.FileName(resource))
}

// internal returns the path of a file in the marks folder that belongs to the
// resource.
func (g *Gate) internal(resource fencing.Resource, kind string) string {
	return filepath.Join(g.dir, marksFolder, storagegate.FileName(resource)+kind)
}

func (g *Gate) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(file *File) error,
) error {
	held, err := lock(ctx, g.internal(resource, ".lock"))
	if err != nil {
		return err
	}
	defer held.release()
	return g.locked(ctx, held, resource, token, write)
}

func (g *Gate) locked(
	ctx context.Context, lock *held, resource fencing.Resource, token fencing.Token, write func(file *File) error,
) error {
	if _, err := g.admit(ctx, resource, token); err != nil {
		return err
	}
	file := &File{disk: g.disk, path: g.Path(resource), temporary: g.internal(resource, ".new")}
	defer file.close(lock)
	if write != nil {
		if err := write(file); err != nil {
			return err
		}
	}
	if err := file.finish(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The write may have taken long, and a lock whose file was removed protects
	// nothing. So check again before the first change.
	mark, err := g.admit(ctx, resource, token)
	if err == nil {
		err = lock.check()
	}
	if err != nil {
		return err
	}
	switch {
	case token > mark:
		if err := g.store(resource, token); err != nil {
			return err
		}
	case token != fencing.None && !g.isDurable(resource, token):
		// The process that raised the mark may have crashed before it was on disk.
		if err := g.disk.syncDir(filepath.Join(g.dir, marksFolder)); err != nil {
			return fmt.Errorf("make the mark of %q durable: %w", string(resource), err)
		}
		g.durable.Store(resource, token)
	}
	return file.replace()
}

// admit applies the rule to the mark on disk and returns that mark.
func (g *Gate) admit(
	ctx context.Context, resource fencing.Resource, token fencing.Token,
) (mark fencing.Token, err error) {
	if mark, err = g.mark(ctx, resource); err == nil {
		err = g.rule.Admit(resource, mark, token)
	}
	return mark, err
}

// isDurable reports whether this gate knows that the mark is on disk.
func (g *Gate) isDurable(resource fencing.Resource, token fencing.Token) bool {
	known, ok := g.durable.Load(resource)
	return ok && known.(fencing.Token) == token
}

func (g *Gate) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	held, err := lock(ctx, g.internal(resource, ".lock"))
	if err != nil {
		return err
	}
	defer held.release()
	mark, err := g.mark(ctx, resource)
	if err == nil {
		err = storagegate.CompareMark(resource, mark, expected)
	}
	if err == nil {
		err = held.check()
	}
	if err != nil {
		return err
	}
	return g.store(resource, to)
}

// store replaces the mark and makes it durable.
func (g *Gate) store(resource fencing.Resource, token fencing.Token) error {
	temporary := g.internal(resource, ".newmark")
	err := writeSynced(g.disk, temporary, markText(resource, token))
	if err == nil {
		err = g.disk.rename(temporary, g.internal(resource, ".mark"))
	}
	if err == nil {
		err = g.disk.syncDir(filepath.Join(g.dir, marksFolder))
	}
	if err != nil {
		return fmt.Errorf("store the mark of %q: %w", string(resource), err)
	}
	g.durable.Store(resource, token)
	return nil
}

func (g *Gate) mark(_ context.Context, resource fencing.Resource) (fencing.Token, error) {
	return readMark(g.internal(resource, ".mark"), resource)
}
