package leases

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// testService is a Service on a cluster of one, without a server in front of it. Its clock
// can be advanced; the clock of the Raft node is not, so sessions stay open.
type testService struct {
	*Service
	clock *leasetest.Clock
}

const sessionTTL = time.Hour

func newTestService(t testing.TB, change ...func(*raftstore.Config)) testService {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	config := raftstore.Config{ID: "n1", Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet}
	for _, f := range change {
		f(&config)
	}
	node, err := raftstore.Open(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.Bootstrap())
	require.Eventually(t, node.Leads, time.Minute, time.Millisecond)
	backend, err := raftstore.NewBackend(node)
	require.NoError(t, err)
	clock := leasetest.NewClock()
	router := &routing.Router{Node: node, Raft: backend, Redis: fleet.NewConnection(node, nil, redlockadapter.Hooks{},
		quiet), Clock: clock}
	chain := &calls.Chain{Router: router, Limits: limits.NewAccounts(limits.Default(), clock),
		Metrics: metrics.New("", "")}
	return testService{New(chain, nil, Signing{}), clock}
}

// attached returns a session as a call finds it.
func (s testService) attached(t testing.TB, id engine.SessionID) *raftstore.Session {
	t.Helper()
	found, err := s.attach(context.Background(), id, nil)
	require.NoError(t, err)
	return found
}

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

// A session whose nonces were forgotten does not get one that it had before.
func TestForgottenSessionGetsNewNonces(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	other := s.openSession(t)
	_, err := s.acquire(other, "b", 0)
	require.NoError(t, err)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 0)
	require.NoError(t, err)
	ended, err := s.chooseNonce(s.attached(t, id))
	require.NoError(t, err)
	require.Equal(t, granted.Nonce+1, uint64(ended), "nonces of a session are consecutive")
	require.NoError(t, s.attached(t, id).Release(context.Background(), engine.Held{Nonce: ended}))

	for range maxChosen {
		s.nonces.next(engine.NewSessionID(), 0)
	}
	require.NotContains(t, s.nonces.last, id)
	_, err = s.acquire(id, "b", 0)
	require.ErrorIs(t, err, engine.ErrHeld, "the other session holds it")
	next, err := s.acquire(id, "c", 0)
	require.NoError(t, err)
	require.Greater(t, next.Nonce, granted.Nonce)
	require.Greater(t, next.Nonce, uint64(ended)+1, "one for b, and one for c")
}

// aheadClock is ahead of the clock of the machine.
type aheadClock struct{ by atomic.Int64 }

func (c *aheadClock) Now() engine.Instant {
	return engine.MonotonicClock().Now().Add(time.Duration(c.by.Load()))
}

// A lease that is renewed for less than the TTL of its session lasts as long as the renewals said.
func TestRenewForAShorterTTL(t *testing.T) {
	t.Parallel()
	clock := &aheadClock{}
	s := newTestService(t, func(c *raftstore.Config) { c.Clock = clock })
	ctx := context.Background()
	granted, err := s.acquire(s.openSession(t), "a", 0)
	require.NoError(t, err)
	clock.by.Store(int64(sessionTTL - 10*time.Minute))
	_, err = s.Renew(ctx, &pb.RenewRequest{Resource: "a", Token: granted.Token, Ttl: "1m"})
	require.NoError(t, err)
	status, err := s.router.Node.Inspect(ctx, "a", raftstore.Stale)
	require.NoError(t, err)
	require.LessOrEqual(t, status.Holders[0].TTL, 10*time.Minute)
}

// The service does not choose a nonce under which the session holds something.
func TestChosenNoncesAvoidLiveOnes(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	ctx := context.Background()
	first := engine.Nonce(s.router.Node.Status().Generation) << 32
	_, err := s.attached(t, id).Acquire(ctx, engine.Request{Nonce: first + 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	next, err := s.acquire(id, "b", 0)
	require.NoError(t, err)
	require.Greater(t, next.Nonce, uint64(first+1))
}

// A nonce that is repeated for another lock or another kind of lease is rejected.
func TestNonceIsForOneRequest(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 7)
	require.NoError(t, err)
	_, err = s.acquire(id, "b", 7)
	require.ErrorIs(t, err, engine.ErrInvalid)
	_, err = s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", Shared: true, SessionId: id.String(),
		Nonce: 7})
	require.ErrorIs(t, err, engine.ErrInvalid, "the first request was not shared")
	again, err := s.acquire(id, "a", 7)
	require.NoError(t, err, "the same request has the same outcome")
	require.Equal(t, granted.Token, again.Token)
}

// A call that waits in the session of its caller keeps it alive also while the lock migrates, for longer than its TTL.
func TestWaitKeepsSessionAliveInAMigration(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	holder, err := s.acquire(s.openSession(t), "a", 1)
	require.NoError(t, err)
	open := func() (id engine.SessionID) {
		opened, err := s.OpenSession(t.Context(), &pb.OpenSessionRequest{Ttl: "6s"})
		require.NoError(t, err)
		id, err = engine.ParseSessionID(opened.SessionId)
		require.NoError(t, err)
		return id
	}
	waiters := func(n int) func() bool {
		return func() bool {
			_, _, waiters := s.router.Node.InspectFirst("a", 0)
			return waiters == n
		}
	}
	id, outcome := open(), make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", SessionId: id.String(), Nonce: 1, Wait: "1h"})
		outcome <- err
	}()
	testserver.Eventually(t, "the call waits", waiters(1))
	_, err = s.router.Node.SetPolicy(t.Context(), engine.Policy{Prefix: "a", Mode: engine.Efficiency}, 0, false)
	require.NoError(t, err)
	testserver.Eventually(t, "the call waits for the migration", waiters(0))
	idle := open()
	testserver.Eventually(t, "an idle session has expired", func() bool {
		_, err := s.router.Node.Requests(t.Context(), idle, raftstore.Stale)
		return err != nil
	})
	_, err = s.router.Node.AbortMigration(t.Context(), "a")
	require.NoError(t, err)
	_, err = s.Release(t.Context(), &pb.ReleaseRequest{Resource: "a", Token: holder.Token})
	require.NoError(t, err)
	require.NoError(t, <-outcome)
}

// A copy of a call that was granted the lock returns the lease also while the lock migrates: the migration waits for
// the lease, which nobody else can release.
func TestCopyReturnsTheLeaseInAMigration(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 1) // the answer is lost
	require.NoError(t, err)
	_, err = s.router.Node.SetPolicy(t.Context(), engine.Policy{Prefix: "a", Mode: engine.Efficiency}, 0, false)
	require.NoError(t, err)
	for _, wait := range []string{"", "5s"} {
		again, err := s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", SessionId: id.String(), Nonce: 1,
			Wait: wait})
		require.NoError(t, err, "wait %q", wait)
		require.Equal(t, granted.Token, again.Token)
	}
	_, err = s.acquire(id, "a", 2)
	require.ErrorIs(t, err, engine.ErrUnavailable, "another attempt is not granted")
}

// A call that waits keeps no lease of its session: a caller that is stopped renews nothing, and its call goes on
// waiting.
func TestWaitKeepsNoLease(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	_, err := s.acquire(s.openSession(t), "b", 1)
	require.NoError(t, err)
	opened, err := s.OpenSession(t.Context(), &pb.OpenSessionRequest{Ttl: "2s"})
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", SessionId: opened.SessionId, Nonce: 1})
	require.NoError(t, err)
	outcome := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "b", SessionId: opened.SessionId, Nonce: 2,
			Wait: "1h"})
		outcome <- err
	}()
	next, err := s.Acquire(t.Context(), &pb.AcquireRequest{Resource: "a", Wait: "1m"})
	require.NoError(t, err, "the lease ends with its TTL")
	require.Equal(t, "a", next.Resource)
	require.ErrorIs(t, <-outcome, engine.ErrLost)
}

// Opening a session again with a longer TTL fails while the session is open.
func TestOpenRejectsAnotherTTL(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	ctx := context.Background()
	open := func(ttl string) error {
		_, err := s.OpenSession(ctx, &pb.OpenSessionRequest{SessionId: id.String(), Ttl: ttl})
		return err
	}
	require.ErrorIs(t, open("24h"), engine.ErrInvalid)
	require.NoError(t, open("1s"), "the session lasts longer")
	require.NoError(t, open(sessionTTL.String()))
	_, err := s.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: id.String()})
	require.NoError(t, err)
	require.NoError(t, open("24h"), "the session was closed")
}

// A stream does not keep the sessions that its client has closed.
func TestStreamDropsClosedSessions(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	st := s.newStream(t)
	id := engine.NewSessionID()
	call := func(op *pb.Operation) error {
		op.Session = id[:]
		return wire.ToError(answerOf(st, op).Error)
	}
	require.NoError(t, call(&pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(sessionTTL)}}}))
	require.Contains(t, st.sessions, id)
	require.NoError(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}))
	require.Empty(t, st.sessions)

	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}), engine.ErrLost,
		"a copy of the call")
	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}}),
		engine.ErrLost)
	id = s.openSession(t)
	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}), engine.ErrInvalid,
		"it was not opened on this stream")
	s.attached(t, id)
}

// The stream rejects an acquire that breaks a rule before any engine sees it, and a
// release of the same attempt does not wait for it.
func TestStreamRejectsInvalidAcquire(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	st := s.newStream(t)
	id := engine.NewSessionID()
	op := &pb.Operation{Session: id[:], Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1, Wait: true,
		TtlNanos: int64(sessionTTL)}}}
	w := st.addWaiter(op)
	require.NotNil(t, w)
	o := st.newOperation(op)
	require.False(t, o.begin(), "it may block")
	o.waiter = w
	st.slots <- struct{}{}
	o.run()
	require.Equal(t, "invalid", sentAnswer(st).GetError().GetCode())
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

// A lease that was granted after a wait does not begin with a TTL that the wait has used.
func TestGrantAfterAWaitIsRenewed(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	holder, waiter := s.openSession(t), s.openSession(t)
	_, err := s.acquire(holder, "a", 1)
	require.NoError(t, err)
	_, err = s.acquire(waiter, "b", 2) // so that the service does not renew the session during the wait
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		_, err := s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", SessionId: waiter.String(), Nonce: 1,
			Wait: "1m"})
		granted <- err
	}()
	inspect := func() engine.Status {
		status, err := s.inspect(context.Background(), "a")
		require.NoError(t, err)
		return status
	}
	testserver.Eventually(t, "the request waits", func() bool { return len(inspect().Waiters) == 1 })
	clock := engine.SystemClock()
	released := clock.Now()
	_, err = s.Release(context.Background(), &pb.ReleaseRequest{SessionId: holder.String(), Nonce: 1})
	require.NoError(t, err)
	require.NoError(t, testserver.Receive(t, granted))
	require.Less(t, inspect().Holders[0].Renewed, clock.Now().Since(released))
}

// The time at which a lease ends, for display, counts from the grant and not from the call, which may have waited for
// longer than a TTL.
func TestExpiresCountsFromTheEndOfTheWait(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	began := s.clock.Now()
	held, err := s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", Ttl: "1h"})
	require.NoError(t, err)
	ends, err := time.Parse(time.RFC3339Nano, held.Expires)
	require.NoError(t, err)
	require.False(t, ends.Before(began.Time().Add(time.Hour).UTC()))
	granted := make(chan *pb.AcquireResponse)
	go func() {
		response, err := s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", Ttl: "1m", Wait: "1h"})
		assert.NoError(t, err)
		granted <- response
	}()
	require.Eventually(t, func() bool {
		status, err := s.router.Node.Inspect(context.Background(), "a", raftstore.Stale)
		return err == nil && len(status.Waiters) == 1
	}, time.Minute, time.Millisecond)
	released := s.clock.Now()
	s.release(t, &pb.ReleaseRequest{Resource: "a", Token: held.Token})
	ends, err = time.Parse(time.RFC3339Nano, (<-granted).Expires)
	require.NoError(t, err)
	require.False(t, ends.Before(released.Time().Add(time.Minute).UTC()))
}
