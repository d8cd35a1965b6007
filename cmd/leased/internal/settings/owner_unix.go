//go:build unix

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner copies the owner, the group and the group's read permission of the old
// file, so the service can still read a file that root has changed.
func keepOwner(old string, file *os.File) error {
	info, err := os.Stat(old)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fresh, err := file.Stat()
	if err != nil {
		return err
	}
	was, known := info.Sys().(*syscall.Stat_t)
	is, ok := fresh.Sys().(*syscall.Stat_t)
	if known && ok && (was.Uid != is.Uid || was.Gid != is.Gid) {
		if err := file.Chown(int(was.Uid), int(was.Gid)); err != nil {
			return fmt.Errorf("keep the owner and group of %s (try as root): %w", old, err)
		}
	}
	return file.Chmod(0o600 | info.Mode().Perm()&0o040)
}

// SyncFolder puts the names in a folder on disk.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
