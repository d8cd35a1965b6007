package filegate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leased-project/leased/storagegate"
)

// File is the replacement that a write prepares. The data written to it replaces
// the content of the file atomically after the write has returned nil.
type File struct {
	disk            disk
	path, temporary string
	next            handle // nil until the first Write
	replaced        bool
}

var _ io.Writer = (*File)(nil)

// Current returns the content to be replaced, or nil if there is no file.
func (f *File) Current() ([]byte, error) {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

// Write appends to the new content. To empty the file, write an empty slice.
func (f *File) Write(p []byte) (int, error) {
	if f.next == nil {
		next, err := f.disk.create(f.temporary)
		if err != nil {
			return 0, fmt.Errorf("create the temporary file: %w", err)
		}
		f.next = next
		if old, err := os.Stat(f.path); err == nil {
			if err := os.Chmod(f.temporary, old.Mode().Perm()); err != nil {
				return 0, fmt.Errorf("keep the permissions of the file: %w", err)
			}
		}
	}
	return f.next.Write(p)
}

// finish makes the new content durable under its temporary name.
func (f *File) finish() error {
	if f.next == nil {
		return nil
	}
	if err := f.next.Sync(); err != nil {
		return fmt.Errorf("write the temporary file: %w", err)
	}
	return nil
}

// replace renames the new content over the old, if there is new content. If the
// rename does not reach the disk, the content after a crash is uncertain.
func (f *File) replace() error {
	if f.next == nil {
		return nil
	}
	if err := f.disk.rename(f.temporary, f.path); err != nil {
		return fmt.Errorf("replace the file: %w", err)
	}
	f.replaced = true
	if err := f.disk.syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("replace the file: %w: %w", storagegate.ErrUncertain, err)
	}
	return nil
}

// close removes new content that did not replace the old, or it would take up space until the next write. Without the
// lock, the temporary file may be that of another writer.
func (f *File) close(lock *held) {
	if f.next == nil {
		return
	}
	_ = f.next.Close()
	if !f.replaced && lock.check() == nil {
		_ = os.Remove(f.temporary)
	}
}
