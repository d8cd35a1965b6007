package observe

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// eventStream is the stream of a watch in this process.
type eventStream struct {
	grpc.ServerStream
	ctx    context.Context
	events chan *pb.Event
}

func (s *eventStream) Context() context.Context { return s.ctx }

func (s *eventStream) Send(e *pb.Event) error {
	s.events <- e
	return nil
}

// A watch reports why a lease ended although the call that ended it did not come
// through this member's API, as when another member led.
func TestWatchTakesReasonsFromTheLog(t *testing.T) {
	s := newService(t)
	var watches []*eventStream
	prefix := ""
	for _, request := range []*pb.WatchRequest{{Prefix: &prefix}, {Resource: "a"}} {
		stream, ended := &eventStream{ctx: t.Context(), events: make(chan *pb.Event, 100)}, make(chan error, 1)
		go func() { ended <- s.Watch(request, stream) }()
		t.Cleanup(func() { require.ErrorIs(t, <-ended, context.Canceled) })
		watches = append(watches, stream)
	}
	expect := func(kind string) {
		t.Helper()
		for _, w := range watches {
			select {
			case e := <-w.events:
				require.Equal(t, kind, e.Type)
			case <-time.After(time.Minute):
				require.FailNow(t, "no event "+kind)
			}
		}
	}
	session, err := s.router.Raft.Open(t.Context(), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute,
		Clock: engine.SystemClock()})
	require.NoError(t, err)
	expect("synced")
	for nonce, end := range []struct {
		reason string
		do     func(nonce engine.Nonce, token fencing.Token) error
	}{
		{"released", func(nonce engine.Nonce, _ fencing.Token) error {
			return session.Release(t.Context(), engine.Held{Nonce: nonce})
		}},
		{"broken", func(_ engine.Nonce, token fencing.Token) error { return s.router.Raft.Break(t.Context(), "a", token) }},
		{"released", func(engine.Nonce, fencing.Token) error { return session.Close(t.Context()) }},
	} {
		grant, err := session.Acquire(t.Context(), engine.Request{Nonce: engine.Nonce(nonce + 1),
			Resources: []fencing.Resource{"a"}})
		require.NoError(t, err)
		expect("granted")
		require.NoError(t, end.do(engine.Nonce(nonce+1), grant.Token))
		expect(end.reason)
	}
}

// A lease that was reported in the former mode of its lock has ended by the end of a migration, and the watch may not
// have read its release before: it reads a prefix only in the modes that its locks have.
func TestWatchEndsLeasesOfTheFormerMode(t *testing.T) {
	s := newService(t)
	holder := engine.Party{Session: engine.NewSessionID(), Nonce: 1}
	for _, c := range []struct {
		name string
		seen engine.Mode
		read engine.Mode
		ends bool
	}{
		{"the lock is in the mode that is read", engine.Correctness, engine.Correctness, true},
		{"it has migrated to that mode", engine.Efficiency, engine.Correctness, true},
		{"it is in another mode", engine.Correctness, engine.Efficiency, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var events []string
			v := &view{Service: s, send: func(e *pb.Event) { events = append(events, e.Mode+" "+e.Resource) },
				askedAt: map[fencing.Resource]engine.Instant{}, seen: map[fencing.Resource]engine.Status{
					"a": {Resource: "a", Mode: c.seen, Holders: []engine.Party{holder}}}}
			require.NoError(t, v.resync(t.Context(), c.read, ""))
			if c.ends {
				require.Equal(t, []string{c.seen.String() + " a"}, events)
			} else {
				require.Empty(t, events)
			}
		})
	}
}

// A watch on a prefix hears of a change in correctness mode when the lock has migrated to efficiency mode and is held
// there. That lease has not ended. A lease in correctness mode that was reported has.
func TestOlderChangeOfALockThatMigrated(t *testing.T) {
	s, ctx := newService(t), t.Context()
	version, err := s.router.Node.SetPolicy(ctx, engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, 0, true)
	require.NoError(t, err)
	require.NoError(t, s.router.Node.Change(ctx, &machine.FinishMigration{Prefix: "fast/", Version: version}))
	for mode, want := range map[engine.Mode][]string{engine.Efficiency: nil, engine.Correctness: {"fast/a"}} {
		var ended []string
		v := &view{Service: s, send: func(e *pb.Event) { ended = append(ended, e.Resource) },
			askedAt: map[fencing.Resource]engine.Instant{}, seen: map[fencing.Resource]engine.Status{
				"fast/a": {Resource: "fast/a", Mode: mode, Holders: []engine.Party{{Session: engine.NewSessionID(), Nonce: 1}}}}}
		require.NoError(t, v.prefix(ctx, "").readRaft(false, []fencing.Resource{"fast/a"}))
		require.Equal(t, want, ended, mode)
	}
}
