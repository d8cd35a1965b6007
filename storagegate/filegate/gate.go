package filegate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/internal/filename"
)

// marksFolder contains marks, locks and temporary files. No resource has this
// file name, because a leading dot is escaped.
const marksFolder = ".leased"

// Gate gates the files of one folder. Any number of processes can open a Gate on
// the same folder.
type Gate struct {
	storagegate.Monitor
	dir  string
	rule fencing.Rule
	disk disk
	// durable maps a resource to a token whose mark is known to be on disk.
	durable sync.Map
}

var (
	_ storagegate.Gate[*File] = (*Gate)(nil)
	_ storagegate.Resetter    = (*Gate)(nil)
)

// New returns a gate for the files in dir and creates the folder if it is
// missing.
func New(dir string, rule fencing.Rule) (*Gate, error) {
	return newGate(dir, rule, osDisk{})
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
	return &Gate{dir: dir, rule: rule, disk: d}, nil
}

// Path returns the path of the resource's file. Readers can open it at any time
// and find the complete content of one write.
func (g *Gate) Path(resource fencing.Resource) string {
	return filepath.Join(g.dir, filename.Escape(resource))
}

// internal returns the path of a file in the marks folder that belongs to the
// resource.
func (g *Gate) internal(resource fencing.Resource, kind string) string {
	return filepath.Join(g.dir, marksFolder, filename.Escape(resource)+kind)
}

// Do implements storagegate.Gate. The data that write writes to file replaces the
// content. If write writes nothing, the content stays. If the disk fails after
// the mark was raised, Do returns the error, the content is unchanged and the
// mark stays raised.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(file *File) error) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	held, err := lock(ctx, g.internal(resource, ".lock"))
	if err != nil {
		return err
	}
	defer held.release()
	return g.Record(ctx, resource, token, g.locked(ctx, held, resource, token, write))
}

func (g *Gate) locked(ctx context.Context, lock *held, resource fencing.Resource, token fencing.Token, write func(file *File) error) error {
	if _, err := g.admit(resource, token); err != nil {
		return err
	}
	file := &File{disk: g.disk, path: g.Path(resource), temporary: g.internal(resource, ".new")}
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
	// The write may have taken long, and a lock whose file was removed protects
	// nothing. So check again before the first change.
	mark, err := g.admit(resource, token)
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
func (g *Gate) admit(resource fencing.Resource, token fencing.Token) (mark fencing.Token, err error) {
	mark, err = readMark(g.internal(resource, ".mark"), resource)
	if err == nil {
		err = g.rule.Admit(resource, mark, token)
	}
	return mark, err
}

// isDurable reports whether this gate knows that the mark is on disk.
func (g *Gate) isDurable(resource fencing.Resource, token fencing.Token) bool {
	known, ok := g.durable.Load(resource)
	return ok && known.(fencing.Token) >= token
}

// Reset implements storagegate.Resetter.
func (g *Gate) Reset(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if err := storagegate.ValidateReset(resource, expected, to); err != nil {
		return err
	}
	held, err := lock(ctx, g.internal(resource, ".lock"))
	if err != nil {
		return err
	}
	defer held.release()
	mark, err := readMark(g.internal(resource, ".mark"), resource)
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
	if err := writeSynced(g.disk, temporary, markText(resource, token)); err != nil {
		return fmt.Errorf("store the mark of %q: %w", string(resource), err)
	}
	if err := g.disk.rename(temporary, g.internal(resource, ".mark")); err != nil {
		return fmt.Errorf("store the mark of %q: %w", string(resource), err)
	}
	if err := g.disk.syncDir(filepath.Join(g.dir, marksFolder)); err != nil {
		return fmt.Errorf("store the mark of %q: %w", string(resource), err)
	}
	g.durable.Store(resource, token)
	return nil
}

// Enter implements storagegate.Gate.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token != fencing.None {
		return g.Do(ctx, resource, token, func(*File) error { return nil })
	}
	return storagegate.RefuseTokenless(ctx, g, resource)
}

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	if err := ctx.Err(); err != nil {
		return fencing.None, err
	}
	return readMark(g.internal(resource, ".mark"), resource)
}
