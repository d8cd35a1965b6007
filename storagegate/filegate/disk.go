package filegate

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// disk has one method for each change on disk whose order matters. Tests record
// the changes and kill the process at each of them.
type disk interface {
	// create creates an empty file and replaces one that a crashed writer left.
	create(path string) (handle, error)
	rename(from, to string) error
	// syncDir makes the names in a folder durable.
	syncDir(path string) error
}

// handle is an open file.
type handle interface {
	io.WriteCloser
	// Sync makes the content durable.
	Sync() error
}

// osDisk is the disk of the operating system.
type osDisk struct {
	umask fs.FileMode // permissions that new files do not have, besides those of the process
}

func (d osDisk) create(path string) (handle, error) {
	// Create a new file, so that a writer that lost its lock cannot write into the
	// file of the next writer.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644&^d.umask)
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// writeSynced writes a file and makes its content durable.
func writeSynced(d disk, path string, content []byte) error {
	f, err := d.create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}
