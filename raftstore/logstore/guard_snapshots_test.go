package logstore

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// faultySnapshots is a snapshot store whose methods return do(name of the method).
type faultySnapshots struct{ do func(what string) error }

func (f *faultySnapshots) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64,
	raft.Transport) (raft.SnapshotSink, error) {
	return &faultySink{f}, f.do("create")
}
func (f *faultySnapshots) List() ([]*raft.SnapshotMeta, error) { return nil, f.do("list") }
func (f *faultySnapshots) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return &raft.SnapshotMeta{}, io.NopCloser(&faultySource{f}), f.do("open")
}

type faultySink struct{ f *faultySnapshots }

func (s *faultySink) ID() string                  { return "1" }
func (s *faultySink) Write(p []byte) (int, error) { return len(p), s.f.do("write") }
func (s *faultySink) Close() error                { return s.f.do("close") }
func (s *faultySink) Cancel() error               { return s.f.do("cancel") }

type faultySource struct{ f *faultySnapshots }

func (s *faultySource) Read([]byte) (int, error) { return 0, s.f.do("read") }

// snapshotCalls returns a call of each method of the store, by name.
func snapshotCalls(s raft.SnapshotStore) map[string]func() {
	sink := func() raft.SnapshotSink {
		sink, _ := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
		return sink
	}
	return map[string]func(){
		"create": func() { sink() },
		"list":   func() { _, _ = s.List() },
		"open":   func() { _, _, _ = s.Open("1") },
		"read":   func() { _, source, _ := s.Open("1"); _, _ = source.Read(nil) },
		"write":  func() { _, _ = sink().Write(make([]byte, 1)) },
		"close":  func() { _ = sink().Close() },
		"cancel": func() { _ = sink().Cancel() },
	}
}

func TestGuardEndsTheNodeOnAnySnapshotError(t *testing.T) {
	broken := errors.New("input/output error")
	for what := range snapshotCalls(nil) {
		t.Run(what, func(t *testing.T) {
			var ended []error
			g := NewGuard(time.Minute, func(err error) { ended = append(ended, err) })
			f := &faultySnapshots{func(called string) error {
				if called == what {
					return broken
				}
				return nil
			}}
			require.False(t, on(snapshotCalls(g.Snapshots(f))[what]), "the call does not return")
			require.Len(t, ended, 1)
			require.ErrorIs(t, ended[0], broken)
			require.False(t, on(func() {
				_ = g.Log(raft.NewInmemStore()).StoreLogs(nil)
			}), "a call of the log does not return either")
		})
	}
}

func TestGuardEndsTheNodeOnAStalledSnapshot(t *testing.T) {
	for _, what := range []string{"create", "list", "write", "close", "cancel"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				g := NewGuard(5*time.Second, func(err error) { ended <- err })
				stuck := make(chan struct{})
				f := &faultySnapshots{func(called string) error {
					if called == what {
						<-stuck
					}
					return nil
				}}
				go snapshotCalls(g.Snapshots(f))[what]()
				require.ErrorIs(t, <-ended, ErrStalled)
				close(stuck)
			})
		})
	}
}

func TestGuardPassesSnapshots(t *testing.T) {
	g := NewGuard(time.Minute, func(err error) { t.Error(err) })
	store, err := raft.NewFileSnapshotStore(t.TempDir(), 1, io.Discard)
	require.NoError(t, err)
	guarded := g.Snapshots(store)
	_, transport := raft.NewInmemTransport("")
	sink, err := guarded.Create(1, 7, 1, raft.Configuration{}, 1, transport)
	require.NoError(t, err)
	state := make([]byte, 3*snapshotPiece+5)
	state[len(state)-1] = 9
	n, err := sink.Write(state)
	require.NoError(t, err)
	require.Equal(t, len(state), n)
	require.NoError(t, sink.Close())
	list, err := guarded.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, source, err := guarded.Open(list[0].ID)
	require.NoError(t, err)
	read, err := io.ReadAll(source)
	require.NoError(t, err)
	require.Equal(t, state, read)
	require.NoError(t, source.Close())
	_, err = source.Read(read)
	require.ErrorIs(t, err, fs.ErrClosed, "a reader that is late is not a disk error")
	_, _, err = guarded.Open("none")
	require.ErrorIs(t, err, fs.ErrNotExist, "a missing snapshot is not a disk error")
}

// Concurrent snapshots of the same index get different names. The clock of the bubble advances while one waits for the
// other.
func TestSnapshotsOfOneIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(time.Minute, func(err error) { t.Error(err) })
		store, err := raft.NewFileSnapshotStore(t.TempDir(), 100, io.Discard)
		require.NoError(t, err)
		guarded := g.Snapshots(store)
		_, transport := raft.NewInmemTransport("")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				sink, err := guarded.Create(1, 7, 1, raft.Configuration{}, 1, transport)
				if err == nil {
					err = sink.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		list, err := guarded.List()
		require.NoError(t, err)
		require.Len(t, list, 20)
	})
}
