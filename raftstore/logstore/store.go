package logstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

// Kind is how a log is kept on disk.
type Kind string

// The kinds of a log.
const (
	// Bolt keeps log and votes in one B+ tree file: two syncs a commit.
	Bolt Kind = "bolt"
	// WAL keeps the log in segments that are only appended to: one sync a
	// commit.
	WAL Kind = "wal"
)

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

// Open opens the log in dir, or begins one. A folder that was written with the
// other kind is refused: a node that began again with an empty log would have
// forgotten its votes.
func Open(kind Kind, dir string, logger hclog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	other := map[Kind]string{Bolt: walDir, WAL: boltFile}[kind]
	if other == "" {
		return nil, fmt.Errorf("open log: kind %q, use %q or %q", kind, Bolt, WAL)
	}
	if _, err := os.Stat(filepath.Join(dir, other)); err == nil {
		return nil, fmt.Errorf("open log: %s was written with the other kind of log (it has %s), not %q; "+
			"start it with the kind it had, or remove the node, empty the folder and join again", dir, other, kind)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open log: %w", err)
	}
	lock, err := lockDir(dir)
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

// openBolt leaves the list of free pages out of every commit, and in a hash
// map: both cost time that grows with the file, and both are rebuilt on open.
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

// Close frees the files. The node must have stopped.
func (s *Store) Close() error { return s.close() }
