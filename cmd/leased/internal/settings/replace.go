package settings

import (
	"fmt"
	"os"
	"path/filepath"
)

// Replace replaces the file at path in one step. Neither a reader nor a power loss sees half of it.
func Replace(path string, data []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*") // has mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err = file.Write(data); err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = Commit(file, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Commit puts a file on disk and then renames it to path, so that path is complete after a power loss, too.
func Commit(file *os.File, path string) error {
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}
