package filegate_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/filegate"
)

// TestStaleWriteIsRefusedAfterTheLockIsRemoved removes the lock file during a
// write, and meanwhile completes a write of another holder.
func TestStaleWriteIsRefusedAfterTheLockIsRemoved(t *testing.T) {
	for name, newer := range map[string]fencing.Token{"newer holder": 34, "the same holder": 33, "no other holder": 0} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			old, err := filegate.New(dir, fencing.Rule{})
			require.NoError(t, err)
			other, err := filegate.New(dir, fencing.Rule{})
			require.NoError(t, err)
			require.NoError(t, old.Do(t.Context(), "report", 33, func(f *filegate.File) error {
				_, err := io.WriteString(f, "first")
				return err
			}))
			err = old.Do(t.Context(), "report", 33, func(f *filegate.File) error {
				_, err := io.WriteString(f, "old")
				require.NoError(t, err)
				require.NoError(t, os.Remove(filepath.Join(dir, ".leased", "report.lock")))
				if newer != 0 {
					require.NoError(t, other.Do(t.Context(), "report", newer, func(f *filegate.File) error {
						_, err := io.WriteString(f, "new")
						return err
					}))
				}
				_, err = io.WriteString(f, " and on")
				return err
			})
			want := "new"
			switch newer {
			case 34:
				require.ErrorIs(t, err, fencing.ErrStale)
			case 0:
				want = "first"
				fallthrough
			default:
				require.ErrorIs(t, err, filegate.ErrLockRemoved)
			}
			content, err := os.ReadFile(old.Path("report"))
			require.NoError(t, err)
			require.Equal(t, want, string(content))
			mark, err := old.Mark(t.Context(), "report")
			require.NoError(t, err)
			require.Equal(t, max(newer, 33), mark, "a mark is never lowered")
			require.NoError(t, old.Do(t.Context(), "report", 35, func(f *filegate.File) error {
				_, err := f.Write(nil)
				return err
			}))
		})
	}
}

// A failed write that lost its lock keeps the content that another writer prepares.
func TestFailedWriteKeepsTheContentOfAnother(t *testing.T) {
	dir := t.TempDir()
	gate, err := filegate.New(dir, fencing.Rule{})
	require.NoError(t, err)
	other, err := filegate.New(dir, fencing.Rule{})
	require.NoError(t, err)
	lost, prepared := make(chan struct{}), make(chan struct{})
	failed := make(chan error)
	go func() {
		failed <- gate.Do(t.Context(), "report", 33, func(f *filegate.File) error {
			if _, err := io.WriteString(f, "old"); err != nil {
				return err
			}
			close(lost)
			<-prepared
			return context.Canceled
		})
	}()
	<-lost
	require.NoError(t, os.Remove(filepath.Join(dir, ".leased", "report.lock")))
	require.NoError(t, other.Do(t.Context(), "report", 34, func(f *filegate.File) error {
		_, err := io.WriteString(f, "new")
		close(prepared)
		require.ErrorIs(t, <-failed, context.Canceled)
		return err
	}))
	content, err := os.ReadFile(gate.Path("report"))
	require.NoError(t, err)
	require.Equal(t, "new", string(content))
}

// TestWriteLocksTheResource tries to enter from another handle during a write.
func TestWriteLocksTheResource(t *testing.T) {
	dir := t.TempDir()
	gate, err := filegate.New(dir, fencing.Rule{})
	require.NoError(t, err)
	other, err := filegate.New(dir, fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, gate.Do(t.Context(), "report", 33, func(*filegate.File) error {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, other.Enter(ctx, "report", 34), context.DeadlineExceeded)
		return nil
	}))
	require.NoError(t, other.Enter(t.Context(), "report", 34))
}
