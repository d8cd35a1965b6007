package boltgate

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
)

// TestGoldenMark checks that a mark of version 1 is read and written as it was.
func TestGoldenMark(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		marks, err := tx.CreateBucket([]byte(Bucket))
		require.NoError(t, err)
		require.NoError(t, put(marks, "orders/42", 34))
		golden.Text(t, "mark.txt", fmt.Sprintf("%s %s %x\n", Bucket, "orders/42", marks.Get([]byte("orders/42"))))
		token, err := read(marks, "orders/42")
		require.NoError(t, err)
		require.Equal(t, fencing.Token(34), token)
		return nil
	}))
}
