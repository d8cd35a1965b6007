package logstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func TestKindsDoNotMix(t *testing.T) {
	for _, kinds := range [][2]Kind{{Bolt, WAL}, {WAL, Bolt}} {
		t.Run(string(kinds[0]), func(t *testing.T) {
			dir := t.TempDir()
			store, err := Open(kinds[0], dir, nil)
			require.NoError(t, err)
			require.NoError(t, store.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("entry")}))
			require.NoError(t, store.Close())
			before := files(t, dir)
			_, err = Open(kinds[1], dir, nil)
			require.ErrorIs(t, err, ErrKind)
			require.ErrorContains(t, err, "start it with \""+string(kinds[0])+"\"")
			require.ErrorContains(t, err, "let it join again")
			require.Equal(t, before, files(t, dir), "nothing was changed")
			store, err = Open(kinds[0], dir, nil)
			require.NoError(t, err)
			last, err := store.Log.LastIndex()
			require.NoError(t, err)
			require.Equal(t, uint64(1), last)
			_, err = Open(kinds[0], dir, nil)
			require.ErrorContains(t, err, "another process is using")
			require.NoError(t, store.Close())
		})
	}
	_, err := Open("paper", t.TempDir(), nil)
	require.ErrorContains(t, err, `unknown log store "paper"; use "wal" or "bolt"`)
}

func TestFolderIsLockedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	lock, err := LockDir(dir)
	require.NoError(t, err)
	_, err = LockDir(dir)
	require.ErrorContains(t, err, "another process is using "+dir)
	require.NoError(t, lock.Close())
	lock, err = LockDir(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}

// files returns the contents of all files below dir, by path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all[path] = "folder"
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	}))
	return all
}

// A follower truncates its log when a new leader's is different. raft-wal 0.4.0
// could not read its log again after that (raft-wal 31).
func TestLogCanBeReadAfterTruncation(t *testing.T) {
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			store, err := Open(kind, dir, nil)
			require.NoError(t, err)
			for index := uint64(1); index <= 5; index++ {
				require.NoError(t, store.Log.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte("old")}))
			}
			require.NoError(t, store.Log.DeleteRange(4, 5))
			require.NoError(t, store.Log.StoreLog(&raft.Log{Index: 4, Term: 2, Data: []byte("new")}))
			require.NoError(t, store.Close())

			store, err = Open(kind, dir, nil)
			require.NoError(t, err)
			defer store.Close()
			last, err := store.Log.LastIndex()
			require.NoError(t, err)
			require.Equal(t, uint64(4), last)
			for index, want := range map[uint64]string{1: "old", 3: "old", 4: "new"} {
				var log raft.Log
				require.NoError(t, store.Log.GetLog(index, &log))
				require.Equal(t, want, string(log.Data))
			}
		})
	}
}

// faulty is a log store whose writes call write.
type faulty struct {
	*raft.InmemStore
	write func() error
}

func (f *faulty) StoreLogs([]*raft.Log) error            { return f.write() }
func (f *faulty) DeleteRange(uint64, uint64) error       { return f.write() }
func (f *faulty) Set([]byte, []byte) error               { return f.write() }
func (f *faulty) SetUint64([]byte, uint64) error         { return f.write() }
func (f *faulty) GetLog(index uint64, l *raft.Log) error { return f.InmemStore.GetLog(index, l) }

// on runs f on a new goroutine and reports whether f returned, rather than ended the
// goroutine.
func on(f func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		returned = true
	}()
	<-done
	return returned
}

func TestGuardEndsTheNodeOnAnyWriteError(t *testing.T) {
	broken := errors.New("input/output error")
	log := []*raft.Log{{Index: 1}}
	for name, call := range map[string]func(*Guard, *faulty){
		"store":    func(g *Guard, f *faulty) { _ = g.Log(f).StoreLogs(log) },
		"truncate": func(g *Guard, f *faulty) { _ = g.Log(f).DeleteRange(1, 1) },
		"vote":     func(g *Guard, f *faulty) { _ = g.Stable(f).Set([]byte("k"), nil) },
		"term":     func(g *Guard, f *faulty) { _ = g.Stable(f).SetUint64([]byte("k"), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			var ended []error
			g := NewGuard(time.Minute, func(err error) { ended = append(ended, err) })
			f := &faulty{raft.NewInmemStore(), func() error { return broken }}
			require.False(t, on(func() { call(g, f) }), "a failed write does not return")
			require.Len(t, ended, 1)
			require.ErrorIs(t, ended[0], broken)
			f.write = func() error { return nil }
			require.False(t, on(func() { call(g, f) }), "later writes do not return, even if the disk works again")
		})
	}
}

func TestGuardEndsTheNodeOnAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		g := NewGuard(5*time.Second, func(err error) { ended <- err })
		stuck := make(chan struct{})
		f := &faulty{raft.NewInmemStore(), func() error { <-stuck; return nil }}
		go func() { _ = g.Log(f).StoreLogs(nil) }()
		require.ErrorIs(t, <-ended, ErrStalled)
		close(stuck)
		synctest.Wait()
		require.False(t, on(func() { _ = g.Log(f).StoreLogs(nil) }))
	})
}

func TestGuardReturnsNotFound(t *testing.T) {
	g := NewGuard(time.Minute, func(err error) { t.Error(err) })
	store := raft.NewInmemStore()
	require.ErrorIs(t, g.Log(store).GetLog(7, &raft.Log{}), raft.ErrLogNotFound)
	_, err := g.Stable(store).Get([]byte("none"))
	require.EqualError(t, err, "not found")
	term, err := g.Stable(store).GetUint64([]byte("none"))
	require.NoError(t, err)
	require.Zero(t, term)
	first, err := g.Log(store).FirstIndex()
	require.NoError(t, err)
	require.Zero(t, first)
	require.False(t, g.Log(store).(raft.MonotonicLogStore).IsMonotonic())
}
