package boltgate_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

const envPath = "BOLTGATE_TEST_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		standStill(path) // never returns
	}
	os.Exit(m.Run())
}

var contents = []byte("contents")

// put stores an empty text too: bbolt cannot tell a nil value from a missing one.
func put(_ context.Context, tx *bolt.Tx, resource fencing.Resource, value string) error {
	b, err := tx.CreateBucketIfNotExists(contents)
	if err != nil {
		return err
	}
	return b.Put([]byte(resource), []byte(value))
}

func get(db *bolt.DB) func(ctx context.Context, resource fencing.Resource) (string, error) {
	return func(_ context.Context, resource fencing.Resource) (value string, err error) {
		err = db.View(func(tx *bolt.Tx) error {
			if b := tx.Bucket(contents); b != nil {
				value = string(b.Get([]byte(resource)))
			}
			return nil
		})
		return value, err
	}
}

func open(t testing.TB, path string, noSync bool) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: noSync, NoFreelistSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestGate opens the file once, as bbolt demands; the handles are two gates
// over it, with their own view of whose turn it is.
func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		db := open(t, filepath.Join(t.TempDir(), "gate.db"), true)
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			return gatetest.Adapt(boltgate.New(db, rule), put, get(db))
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	gate := boltgate.New(open(t, filepath.Join(t.TempDir(), "gate.db"), true), fencing.Rule{})
	ctx, cancel := context.WithCancel(t.Context())
	err := gate.Do(t.Context(), "door", 1, func(*bolt.Tx) error {
		cancel()
		return gate.Enter(ctx, "door", 2) // would wait for ever
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAStrangeMarkIsNotGuessedAt(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "gate.db"), true)
	for _, value := range [][]byte{{}, {1}, binary.BigEndian.AppendUint64(nil, 1<<63)} {
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(boltgate.Bucket))
			require.NoError(t, err)
			return b.Put([]byte("door"), value)
		}))
		require.ErrorIs(t, boltgate.New(db, fencing.Rule{}).Enter(t.Context(), "door", 5), fencing.ErrInvalidToken)
	}
}

// endsInCommit is a context that ends once the gate has looked at it for the
// last time before the commit.
type endsInCommit struct {
	context.Context
	written, looked *bool
}

func (c endsInCommit) Err() error {
	if *c.looked {
		return context.Canceled
	}
	*c.looked = *c.written
	return nil
}

// TestAFailedCommitIsUncertain takes the file away from under bbolt, so that its
// commit fails, and nobody can say how much of it is on disk.
func TestAFailedCommitIsUncertain(t *testing.T) {
	for _, name := range []string{"context lives", "context ends in the commit"} {
		t.Run(name, func(t *testing.T) {
			var file *os.File
			db, err := bolt.Open(filepath.Join(t.TempDir(), "gate.db"), 0o600, &bolt.Options{
				OpenFile: func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
					file, err = os.OpenFile(path, flag, mode)
					return file, err
				}})
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			gate := boltgate.New(db, fencing.Rule{})
			require.NoError(t, gate.Enter(t.Context(), "door", 1))

			written, looked := false, false
			ctx := t.Context()
			if name != "context lives" {
				ctx = endsInCommit{ctx, &written, &looked}
			}
			err = gate.Do(ctx, "door", 2, func(tx *bolt.Tx) error {
				written = true
				return errors.Join(put(ctx, tx, "door", "maybe"), file.Close())
			})
			require.ErrorIs(t, err, storagegate.ErrUncertain)
			require.ErrorIs(t, err, os.ErrClosed)
			require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts(), "an unknown outcome is no decision")
		})
	}
}

// A write that fails before the commit has a known outcome, also if it fails
// because its bucket is not there.
func TestAMissingBucketIsNotUncertain(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "gate.db"), true)
	gate := boltgate.New(db, fencing.Rule{})
	mark, err := gate.Mark(t.Context(), "door")
	require.NoError(t, err, "no bucket of marks yet")
	require.Equal(t, fencing.None, mark)
	err = gate.Do(t.Context(), "door", 2, func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("accounts")) })
	require.ErrorIs(t, err, bolterrors.ErrBucketNotFound)
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
	require.NoError(t, gate.Enter(t.Context(), "door", 1), "and left no mark")
}

// TestKilledBetweenCheckAndCommit kills a real process there, and opens the
// file that it leaves behind.
func TestKilledBetweenCheckAndCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gate.db")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envPath+"="+path)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "standing still\n", line)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()

	db := open(t, path, false)
	gate := boltgate.New(db, fencing.Rule{})
	mark, err := gate.Mark(t.Context(), "door")
	require.NoError(t, err)
	value, err := get(db)(t.Context(), "door")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(1), mark)
	require.Equal(t, "one", value)
	require.NoError(t, gate.Enter(t.Context(), "door", 2))
}

// standStill is the child: it commits one write and stops in the next.
func standStill(path string) {
	ctx := context.Background()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		panic(err)
	}
	gate := boltgate.New(db, fencing.Rule{})
	write := func(value string, then func()) func(tx *bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			defer then()
			return put(ctx, tx, "door", value)
		}
	}
	if err := gate.Do(ctx, "door", 1, write("one", func() {})); err != nil {
		panic(err)
	}
	panic(gate.Do(ctx, "door", 3, write("three", func() {
		fmt.Println("standing still")
		select {}
	})))
}
