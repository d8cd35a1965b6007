package logstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

// Kind names a format of the log on disk.
type Kind string

// The kinds of log store.
const (
	// Bolt keeps log and votes in one B+ tree file (raft-boltdb): two syncs per
	// commit.
	Bolt Kind = "bolt"
	// WAL keeps the log in append-only segments (raft-wal): one sync per commit.
	WAL Kind = "wal"
)

// ErrKind reports a folder whose log is of another kind than the configured one.
var ErrKind = errors.New("folder has another kind of log store")

// ParseKind returns the Kind with this name.
func ParseKind(name string) (Kind, error) {
	if k := Kind(name); k == Bolt || k == WAL {
		return k, nil
	}
	return "", fmt.Errorf("unknown log store %q; use %q or %q", name, WAL, Bolt)
}

const (
	boltFile = "raft.db"
	walDir   = "wal"
	// openTimeout bounds the wait for the lock of a file that another process
	// has open.
	openTimeout = 2 * time.Second
)

// Store is an open log with the votes that belong to it.
type Store struct {
	Log    raft.LogStore
	Stable raft.StableStore
	close  func() error
}

// Open opens the log in dir, or creates one. It returns ErrKind for a folder that
// has the other kind of log, and changes nothing there: a node that
// restarts with an empty log would have forgotten its votes.
func Open(kind Kind, dir string, logger hclog.Logger) (*Store, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := checkKind(kind, dir); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	lock, err := LockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	var store *Store
	if kind == WAL {
		store, err = openWAL(filepath.Join(dir, walDir), logger)
	} else {
		store, err = openBolt(filepath.Join(dir, boltFile))
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	release := store.close
	store.close = func() error { return errors.Join(release(), lock.Close()) }
	return store, nil
}

// LockDir creates a folder, and makes this process its only user until Close, or until the process
// ends. Some systems have no file locks: there the operator must not start two processes on one folder.
func LockDir(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("another process is using %s: %w", dir, err)
	}
	return file, nil
}

// checkKind refuses a folder that has a log of the other kind.
func checkKind(kind Kind, dir string) error {
	other, name := Bolt, boltFile
	if kind == Bolt {
		other, name = WAL, walDir
	}
	_, err := os.Stat(filepath.Join(dir, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: %s has a %q log (%s), and the node is configured for %q; start it with %q, "+
		"or change the kind: remove the member from the cluster, empty its folder and let it join again "+
		"(a cluster of one member: save a snapshot, start on an empty folder and restore it)", ErrKind, dir, other, name,
		kind, other)
}

// openBolt does not sync the freelist and keeps it in a hash map. The alternatives cost time
// that grows with the file. The freelist is rebuilt on open.
func openBolt(path string) (*Store, error) {
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		Timeout: openTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
	}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Store{Log: store, Stable: store, close: store.Close}, nil
}

func openWAL(dir string, logger hclog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := wal.Open(dir, wal.WithLogger(logger))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Store{Log: log, Stable: log, close: log.Close}, nil
}

// Close closes the files. The node must have stopped.
func (s *Store) Close() error { return s.close() }
