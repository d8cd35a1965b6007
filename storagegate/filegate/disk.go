package filegate

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// disk is what a gate changes on disk, one method for each step whose order
// matters. Tests watch it, and die at each of its steps.
type disk interface {
	// create makes an empty file, in place of what a dead writer left there.
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

// osDisk is the real one.
type osDisk struct{}

func (osDisk) create(path string) (handle, error) {
	// A new file, so that a writer that lost its lock cannot go on writing into
	// one that has been given its name since.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
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

// writeSynced writes a whole file and makes its content durable.
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
