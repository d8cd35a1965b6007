package leases

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// testService is a Service on a cluster of one, without a server in front of it. It
// sweeps only when a test calls Sweep. Its clock can be advanced; the clock of the
// Raft node is not, so that sessions stay open.
type testService struct {
	*Service
	clock *leasetest.Clock
}

const sessionTTL = time.Hour

func newTestService(t testing.TB) testService {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.Bootstrap())
	require.Eventually(t, node.Leads, time.Minute, time.Millisecond)
	backend, err := raftstore.NewBackend(node)
	require.NoError(t, err)
	clock := leasetest.NewClock()
	router := &routing.Router{Node: node, Raft: backend, Redis: fleet.NewConnection(node, nil, redlockadapter.Hooks{}, quiet), Clock: clock}
	return testService{New(router, nil, limits.NewAccounts(limits.Default(), clock)), clock}
}

// expireCache lets more time pass than an unused session stays cached.
func (s testService) expireCache() { s.clock.Suspend(2*sessionTTL + 2*unusedGrace) }

func (s testService) openSession(t testing.TB) engine.SessionID {
	t.Helper()
	opened, err := s.OpenSession(context.Background(), &pb.OpenSessionRequest{Ttl: sessionTTL.String()})
	require.NoError(t, err)
	id, err := engine.ParseSessionID(opened.SessionId)
	require.NoError(t, err)
	return id
}

func (s testService) acquire(id engine.SessionID, name string, nonce uint64) (*pb.AcquireResponse, error) {
	return s.Acquire(context.Background(), &pb.AcquireRequest{Resource: name, SessionId: id.String(), Nonce: nonce})
}

// A session that a call uses stays cached, whether or not the call renews it.
func TestSweepKeepsUsedSessions(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	for name, use := range map[string]func() error{
		"opened again": func() error { _, err := s.sessions.open(context.Background(), id, sessionTTL); return err },
		"attached":     func() error { _, err := s.acquire(id, "a", 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s.expireCache()
			require.NoError(t, use())
			s.Sweep()
			require.NotNil(t, s.sessions.find(id))
		})
	}
	s.expireCache()
	s.Sweep()
	require.Nil(t, s.sessions.find(id), "the session was not used")
}

// A session that was swept and is used again does not get a nonce that it had before.
func TestSweptSessionGetsNewNonces(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	other := s.openSession(t)
	_, err := s.acquire(other, "b", 0)
	require.NoError(t, err)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 0)
	require.NoError(t, err)
	ended, err := s.sessions.find(id).nextNonce()
	require.NoError(t, err)
	require.NoError(t, s.sessions.find(id).raft.Release(context.Background(), engine.Held{Nonce: ended}))

	s.expireCache()
	s.Sweep()
	_, err = s.acquire(id, "b", 0)
	require.ErrorIs(t, err, engine.ErrHeld, "the other session holds it")
	next, err := s.acquire(id, "c", 0)
	require.NoError(t, err)
	require.Greater(t, next.Nonce, granted.Nonce)
	require.Greater(t, next.Nonce, uint64(ended)+1, "one for b, and one for c")
}

// The service does not choose a nonce under which the session holds something.
func TestChosenNoncesAvoidLiveOnes(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	ctx := context.Background()
	first := s.sessions.firstNonce()
	_, err := s.sessions.find(id).raft.Acquire(ctx, engine.Request{Nonce: first + 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	next, err := s.acquire(id, "b", 0)
	require.NoError(t, err)
	require.Greater(t, next.Nonce, uint64(first+1))
}

// A nonce that is repeated for another lock or another kind of lease is rejected,
// also by a member that has not seen the first request.
func TestNonceIsForOneRequest(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 7)
	require.NoError(t, err)
	for name, before := range map[string]func(){
		"cached": func() {},
		"swept":  func() { s.expireCache(); s.Sweep() },
	} {
		t.Run(name, func(t *testing.T) {
			before()
			_, err := s.acquire(id, "b", 7)
			require.ErrorIs(t, err, engine.ErrInvalid)
			_, err = s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", Shared: true, SessionId: id.String(), Nonce: 7})
			require.ErrorIs(t, err, engine.ErrInvalid, "the first request was not shared")
			again, err := s.acquire(id, "a", 7)
			require.NoError(t, err, "the same request has the same outcome")
			require.Equal(t, granted.Token, again.Token)
		})
	}
}

// Opening a session again with another TTL fails while the session is open.
func TestOpenRejectsAnotherTTL(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	ctx := context.Background()
	open := func(ttl string) error {
		_, err := s.OpenSession(ctx, &pb.OpenSessionRequest{SessionId: id.String(), Ttl: ttl})
		return err
	}
	require.ErrorIs(t, open("1m"), engine.ErrInvalid)
	require.NoError(t, open(sessionTTL.String()))
	_, err := s.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: id.String()})
	require.NoError(t, err)
	require.NoError(t, open("1m"), "the session was closed")
}

// A stream does not keep the sessions that its client has closed.
func TestStreamDropsClosedSessions(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	st := &stream{service: s.Service, account: s.limits.Of(context.Background()), ctx: context.Background(), sessions: map[engine.SessionID]*session{}, wake: make(chan struct{}, 1)}
	id := engine.NewSessionID()
	call := func(op *pb.Operation) error {
		op.Session = id[:]
		return wire.ToError(st.answerOf(op).Error)
	}
	require.NoError(t, call(&pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(sessionTTL)}}}))
	opened, err := st.session(id)
	require.NoError(t, err)
	require.Contains(t, opened.listeners, st)
	require.NoError(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}))
	require.Empty(t, st.sessions)
	require.Empty(t, opened.listeners)

	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}), engine.ErrLost, "a copy of the call")
	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}}), engine.ErrLost)
	id = s.openSession(t)
	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}), engine.ErrInvalid, "it was not opened on this stream")
	require.NotNil(t, s.sessions.find(id))
}

// The stream rejects an acquire that breaks a rule before any engine sees it, and a
// release of the same attempt does not wait for it.
func TestStreamRejectsInvalidAcquire(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	st := &stream{service: s.Service, account: s.limits.Of(ctx), ctx: ctx, sessions: map[engine.SessionID]*session{}, waiters: map[attempt]*redisWaiter{}}
	id := engine.NewSessionID()
	op := &pb.Operation{Session: id[:], Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Wait: true, TtlNanos: int64(sessionTTL)}}}
	w := st.addWaiter(op)
	require.NotNil(t, w)
	o := st.newOperation(op)
	require.False(t, o.begin(), "it may block")
	o.waiter = w
	o.run()
	require.Equal(t, "invalid", o.finish().GetError().GetCode())
	require.Empty(t, st.waiters)
	testserver.Receive(t, w.done)
}

// A member that loses the leadership right after a grant must not forward the request: it
// would wait for its own first lease.
func TestGrantThatIsNotRenewedIsNotForwarded(t *testing.T) {
	err := grantedBut(&raftstore.NotLeaderError{Node: "n1"})
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.False(t, routing.IsNotLeader(err))
	require.NoError(t, grantedBut(nil))
	require.NotErrorIs(t, grantedBut(engine.ErrExpired), engine.ErrUncertain, "the attempt holds nothing")
}
