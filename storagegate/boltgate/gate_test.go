package boltgate_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

const envPath = "BOLTGATE_TEST_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		pausedChild(path) // does not return
	}
	os.Exit(m.Run())
}

var contents = []byte("contents")

// put writes the value of a resource.
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

// TestGate opens the file once, as bbolt requires. The handles are gates over the
// same database.
func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		db := open(t, filepath.Join(t.TempDir(), "gate.db"), true)
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			return gatetest.Adapt(boltgate.New(db, rule), put, get(db))
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	gate := boltgate.New(open(t, filepath.Join(t.TempDir(), "gate.db"), true), fencing.Rule{})
	ctx, cancel := context.WithCancel(t.Context())
	err := gate.Do(t.Context(), "orders", 1, func(*bolt.Tx) error {
		cancel()
		return gate.Enter(ctx, "orders", 2) // would deadlock
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestInvalidMarkIsAnError(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "gate.db"), true)
	for _, value := range [][]byte{{}, {1}, binary.BigEndian.AppendUint64(nil, 1<<63)} {
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(boltgate.Bucket))
			require.NoError(t, err)
			return b.Put([]byte("orders"), value)
		}))
		require.ErrorIs(t, boltgate.New(db, fencing.Rule{}).Enter(t.Context(), "orders", 5), fencing.ErrInvalidToken)
	}
}

// endsInCommit is a context that ends after the gate has checked it for the last
// time before the commit.
type endsInCommit struct {
	context.Context
	written, checked *bool
}

func (c endsInCommit) Err() error {
	if *c.checked {
		return context.Canceled
	}
	*c.checked = *c.written
	return nil
}

// TestFailedCommitIsUncertain closes the file under bbolt, so that the commit
// fails and it is unknown how much of it is on disk.
func TestFailedCommitIsUncertain(t *testing.T) {
	for _, name := range []string{"context does not end", "context ends during the commit"} {
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
			require.NoError(t, gate.Enter(t.Context(), "orders", 1))

			written, checked := false, false
			ctx := t.Context()
			if name != "context does not end" {
				ctx = endsInCommit{ctx, &written, &checked}
			}
			err = gate.Do(ctx, "orders", 2, func(tx *bolt.Tx) error {
				written = true
				return errors.Join(put(ctx, tx, "orders", "maybe"), file.Close())
			})
			require.ErrorIs(t, err, storagegate.ErrUncertain)
			require.ErrorIs(t, err, os.ErrClosed)
			require.Equal(t, storagegate.Counts{Admitted: 1}, gate.Counts(), "an unknown outcome is not a decision")
		})
	}
}

// A write that fails before the commit has a known outcome, even if it fails
// because a bucket is missing.
func TestMissingBucketIsNotUncertain(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "gate.db"), true)
	gate := boltgate.New(db, fencing.Rule{})
	mark, err := gate.Mark(t.Context(), "orders")
	require.NoError(t, err, "there is no bucket for marks yet")
	require.Equal(t, fencing.None, mark)
	err = gate.Do(t.Context(), "orders", 2, func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("accounts")) })
	require.ErrorIs(t, err, bolterrors.ErrBucketNotFound)
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
	require.NoError(t, gate.Enter(t.Context(), "orders", 1), "the failed write must not leave a mark")
}

// TestKilledBetweenCheckAndCommit kills a process there and opens the file that
// it leaves.
func TestKilledBetweenCheckAndCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gate.db")
	testserver.KillPaused(t, append(fencing.Environ("orders", 3), envPath+"="+path)...)

	db := open(t, path, false)
	gate := boltgate.New(db, fencing.Rule{})
	mark, err := gate.Mark(t.Context(), "orders")
	require.NoError(t, err)
	value, err := get(db)(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(1), mark)
	require.Equal(t, "one", value)
	require.NoError(t, gate.Enter(t.Context(), "orders", 2))
}

// pausedChild commits one write and pauses in the next.
func pausedChild(path string) {
	ctx := context.Background()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		panic(err)
	}
	gate := boltgate.New(db, fencing.Rule{})
	err = gate.Do(ctx, "orders", 1, func(tx *bolt.Tx) error { return put(ctx, tx, "orders", "one") })
	if err != nil {
		panic(err)
	}
	panic(gate.Do(ctx, "orders", 3, func(tx *bolt.Tx) error {
		if err := put(ctx, tx, "orders", "three"); err != nil {
			return err
		}
		testserver.PauseForKill()
		return nil
	}))
}

// A restored backup has old marks: G1 does not hold until a newer holder enters, as
// docs/GUARANTEES.md says.
func TestRestoredBackupAdmitsStaleWrites(t *testing.T) {
	path, backup := filepath.Join(t.TempDir(), "gate.db"), filepath.Join(t.TempDir(), "backup.db")
	db := open(t, path, true)
	gate := boltgate.New(db, fencing.Rule{})
	require.NoError(t, gate.Enter(t.Context(), "orders", 33))
	require.NoError(t, db.View(func(tx *bolt.Tx) error { return tx.CopyFile(backup, 0o600) }))
	require.NoError(t, gate.Enter(t.Context(), "orders", 34))
	restored := boltgate.New(open(t, backup, true), fencing.Rule{})
	require.NoError(t, restored.Enter(t.Context(), "orders", 33), "the mark 34 is lost")
	require.NoError(t, restored.Enter(t.Context(), "orders", 35), "the first holder after the restore enters")
	require.ErrorIs(t, restored.Enter(t.Context(), "orders", 34), fencing.ErrStale)
}
