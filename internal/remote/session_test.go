package remote_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// leader answers as a leader that grants every acquire with its token, and that knows
// the grants that it made.
func leader(token uint64) func(*pb.Operation) *pb.Answer {
	granted := map[uint64]uint64{}
	return func(op *pb.Operation) *pb.Answer {
		switch call := op.Call.(type) {
		case *pb.Operation_Acquire:
			granted[call.Acquire.Nonce] = token
			return &pb.Answer{Token: token, Mode: "correctness"}
		case *pb.Operation_Attach:
			answer := &pb.Answer{}
			for nonce, token := range granted {
				answer.Holds = append(answer.Holds, &pb.Hold{Nonce: nonce, Token: token})
			}
			return answer
		}
		return &pb.Answer{}
	}
}

// losses records the losses that a session reports.
type losses struct {
	mu     sync.Mutex
	errors map[engine.Nonce]error
}

func (l *losses) of(nonce engine.Nonce) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors[nonce]
}

func (l *losses) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.errors)
}

func openSession(t *testing.T, b engine.Backend) (engine.Session, engine.SessionID, *losses) {
	t.Helper()
	lost := &losses{errors: map[engine.Nonce]error{}}
	id := engine.NewSessionID()
	s, err := b.Open(bounded(t), engine.SessionConfig{ID: id, TTL: ttl, Lost: func(nonce engine.Nonce, err error) {
		lost.mu.Lock()
		defer lost.mu.Unlock()
		lost.errors[nonce] = err
	}})
	require.NoError(t, err)
	return s, id, lost
}

func one(nonce engine.Nonce) engine.Request {
	return engine.Request{Nonce: nonce, Resources: []fencing.Resource{"a"}}
}

// calls returns the kinds of the operations that a member received.
func calls(m *member) []string {
	var kinds []string
	for _, op := range m.operations() {
		switch op.Call.(type) {
		case *pb.Operation_Open:
			kinds = append(kinds, "open")
		case *pb.Operation_Attach:
			kinds = append(kinds, "attach")
		case *pb.Operation_Acquire:
			kinds = append(kinds, "acquire")
		case *pb.Operation_Renew:
			kinds = append(kinds, "renew")
		case *pb.Operation_Release:
			kinds = append(kinds, "release")
		case *pb.Operation_Close:
			kinds = append(kinds, "close")
		}
	}
	return kinds
}

func TestSession(t *testing.T) {
	m := startMember(t)
	m.answer = leader(7)
	s, _, lost := openSession(t, backend(t, remote.Config{}, m))
	grant, err := s.Acquire(bounded(t), one(1))
	require.NoError(t, err)
	require.Equal(t, fencing.Token(7), grant.Token)
	require.Equal(t, engine.Correctness, grant.Mode)
	_, err = s.Renew(bounded(t))
	require.NoError(t, err)
	require.NoError(t, s.Release(bounded(t), engine.Held{Nonce: 1}))
	require.NoError(t, s.Close(bounded(t)))
	require.Equal(t, []string{"open", "acquire", "renew", "release", "close"}, calls(m))
	require.Zero(t, lost.count())
	_, err = s.Acquire(bounded(t), one(2))
	require.ErrorIs(t, err, engine.ErrLost, "the session is closed")
}

// TestRedirectToTheLeader checks that a call finds the leader in one try, also if the
// leader is not one of the endpoints, and that later calls go there directly.
func TestRedirectToTheLeader(t *testing.T) {
	follower, lead := startMember(t), startMember(t)
	follower.answer = fails(&wire.NotLeaderError{Leader: lead.address, Text: "not the leader"})
	lead.answer = leader(3)
	s, _, _ := openSession(t, backend(t, remote.Config{}, follower))
	grant, err := s.Acquire(bounded(t), one(1))
	require.NoError(t, err)
	require.Equal(t, fencing.Token(3), grant.Token)
	require.Equal(t, []string{"open"}, calls(follower))
	require.Equal(t, []string{"open", "acquire"}, calls(lead))
}

// TestSearchDuringAnElection checks that a call waits for the leader while all members
// say that there is none.
func TestSearchDuringAnElection(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.answer = fails(&wire.NotLeaderError{Text: "no leader"})
	b.answer = fails(&wire.NotLeaderError{Text: "no leader"})
	service := backend(t, remote.Config{Timeout: testTimeout}, a, b)
	opened := make(chan error, 1)
	go func() {
		_, err := service.Open(bounded(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
		opened <- err
	}()
	eventually(t, "both members were asked", func() bool { return len(calls(a)) > 0 && len(calls(b)) > 0 })
	b.set(func() { b.answer = leader(1) })
	require.NoError(t, <-opened)
}

// TestMembersThatNameEachOther checks that a call pauses between its tries although each
// member names a leader.
func TestMembersThatNameEachOther(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.answer = fails(&wire.NotLeaderError{Leader: b.address, Text: "b leads"})
	b.answer = fails(&wire.NotLeaderError{Leader: a.address, Text: "a leads"})
	ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
	defer cancel()
	_, err := backend(t, remote.Config{}, a, b).Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
	require.Error(t, err)
	require.Less(t, len(calls(a))+len(calls(b)), 15, "pauses of 20, 40, 80 and 100 ms after the first tries")
}

func TestSearchEndsWithTheTimeout(t *testing.T) {
	a := startMember(t)
	a.answer = fails(&wire.NotLeaderError{Text: "no leader is known"})
	down := startMember(t)
	down.server.Stop()
	_, err := backend(t, remote.Config{Timeout: 5 * time.Second}, a, down).
		Open(bounded(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
	require.ErrorIs(t, err, wire.ErrNotLeader, "the answer of a member is more telling than one that is down")
	_, err = backend(t, remote.Config{Timeout: 300 * time.Millisecond}, down).
		Open(bounded(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.ErrorContains(t, err, down.address)
}

// TestLostAnswerIsUncertain checks that a call whose connection broke is not repeated:
// the service may have executed it.
func TestLostAnswerIsUncertain(t *testing.T) {
	m := startMember(t)
	m.answer = leader(1)
	s, _, lost := openSession(t, backend(t, remote.Config{}, m))
	m.set(func() {
		answer := m.answer
		m.answer = func(op *pb.Operation) *pb.Answer {
			if op.GetAcquire() == nil {
				return answer(op)
			}
			answer(op)
			m.answer = answer
			return nil // the stream breaks after the grant
		}
	})
	_, err := s.Acquire(bounded(t), one(1))
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.NotErrorIs(t, err, engine.ErrUnavailable)
	require.Equal(t, []string{"open", "acquire"}, calls(m))
	grant, err := s.Acquire(bounded(t), one(1))
	require.NoError(t, err, "the caller repeats the attempt with the same nonce")
	require.Equal(t, fencing.Token(1), grant.Token)
	require.Equal(t, []string{"open", "acquire", "attach", "acquire"}, calls(m),
		"the session is attached to the new stream")
	require.Zero(t, lost.count())
}

// TestAttachReportsLostGrants checks that a session which reconnects learns which of
// its grants the leader no longer knows.
func TestAttachReportsLostGrants(t *testing.T) {
	m := startMember(t)
	m.answer = leader(1)
	s, _, lost := openSession(t, backend(t, remote.Config{}, m))
	for nonce := range engine.Nonce(2) {
		_, err := s.Acquire(bounded(t), one(nonce+1))
		require.NoError(t, err)
	}
	m.server.Stop()
	restarted := startMemberAt(t, m.address)
	restarted.answer = func(op *pb.Operation) *pb.Answer {
		if op.GetAttach() != nil {
			return &pb.Answer{Holds: []*pb.Hold{{Nonce: 2, Token: 1}}}
		}
		return &pb.Answer{}
	}
	eventually(t, "the session is renewed at the restarted member", func() bool {
		_, err := s.Renew(bounded(t))
		return err == nil
	})
	require.ErrorIs(t, lost.of(1), engine.ErrExpired)
	require.NoError(t, lost.of(2))
}

// TestSessionIsToldThatItsConnectionDropped checks that a session is told when its connection
// drops, so that it can reconnect before its next renewal.
func TestSessionIsToldThatItsConnectionDropped(t *testing.T) {
	m := startMember(t)
	m.answer = leader(1)
	told := make(chan struct{}, 1)
	_, err := backend(t, remote.Config{}, m).Open(bounded(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl,
		Disconnected: func() { told <- struct{}{} }})
	require.NoError(t, err)
	require.Empty(t, told)
	m.server.Stop()
	select {
	case <-told:
	case <-bounded(t).Done():
		t.Fatal("it was not told")
	}
}

func TestSessionThatTheLeaderDoesNotKnowIsLost(t *testing.T) {
	m := startMember(t)
	m.answer = leader(1)
	s, _, lost := openSession(t, backend(t, remote.Config{}, m))
	_, err := s.Acquire(bounded(t), one(1))
	require.NoError(t, err)
	m.set(func() { m.answer = fails(engine.ErrNotHeld) })
	_, err = s.Renew(bounded(t))
	require.ErrorIs(t, err, engine.ErrLost)
	require.ErrorIs(t, lost.of(1), engine.ErrLost)
	require.NoError(t, s.Release(bounded(t), engine.Held{Nonce: 1}), "a lost session counts as released")
}

// TestNotices checks that losses and queue notices reach their session, and that a
// notice with a malformed session id is ignored.
func TestNotices(t *testing.T) {
	m := startMember(t)
	m.answer = leader(1)
	s, id, lost := openSession(t, backend(t, remote.Config{}, m))
	for nonce := range engine.Nonce(2) {
		_, err := s.Acquire(bounded(t), one(nonce+1))
		require.NoError(t, err)
	}
	m.set(func() {
		m.notices = []*pb.Notice{
			{Session: id[:4], Nonce: 2, Lost: wire.FromError(engine.ErrTaken)},
			{Session: append(id[:], 0), Nonce: 2, Lost: wire.FromError(engine.ErrTaken)},
			{Nonce: 2, Lost: wire.FromError(engine.ErrTaken)},
			{Session: id[:], Nonce: 1, Lost: wire.FromError(engine.ErrTaken)},
		}
	})
	_, err := s.Renew(bounded(t))
	require.NoError(t, err, "the connection survives malformed notices")
	eventually(t, "the loss is reported", func() bool { return lost.of(1) != nil })
	require.ErrorIs(t, lost.of(1), engine.ErrTaken)
	require.NoError(t, lost.of(2))

	queued := make(chan struct{})
	m.set(func() {
		m.answer = func(op *pb.Operation) *pb.Answer {
			if op.GetAcquire() != nil {
				m.notices = []*pb.Notice{{Session: id[:], Nonce: op.GetAcquire().Nonce}}
			}
			return &pb.Answer{Id: 0}
		}
	})
	waiting := one(9)
	waiting.Wait, waiting.Queued = true, func() { close(queued) }
	ctx, cancel := context.WithCancel(bounded(t))
	go func() { _, _ = s.Acquire(ctx, waiting) }()
	<-queued
	cancel()
}

// TestSilentMemberIsAbandoned checks that a member which does not answer a keep-alive
// in time is not used for the next call.
func TestSilentMemberIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.answer = leader(1)
		s, _, _ := openSession(t, backend(t, network.config(), m))
		m.set(func() { m.answer = nil })
		ctx, cancel := context.WithTimeout(bounded(t), time.Second)
		defer cancel()
		_, err := s.Renew(ctx)
		require.ErrorIs(t, err, engine.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		m.set(func() { m.answer = leader(1) })
		_, err = s.Renew(bounded(t))
		require.NoError(t, err)
		require.Equal(t, 2, m.opened(), "on a new connection")
	})
}

func TestUnauthenticatedCaller(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.rejects, b.rejects = wire.ErrUnauthenticated, wire.ErrUnauthenticated
	_, err := backend(t, remote.Config{}, a, b).Open(bounded(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
	require.ErrorIs(t, err, wire.ErrUnauthenticated)
	require.ErrorIs(t, err, engine.ErrInvalid, "a retry cannot help")

	knows := startMember(t)
	knows.answer = leader(1)
	openSession(t, backend(t, remote.Config{}, a, knows)) // one member may not have read its users yet
}

func TestInspectAndWatch(t *testing.T) {
	m := startMember(t)
	holders := 0
	m.inspect = func() (*pb.Lock, error) {
		status := engine.Status{Resource: "a", Mode: engine.Correctness}
		for i := range holders {
			status.Holders = append(status.Holders, engine.Party{Token: fencing.Token(i + 1), Session: engine.NewSessionID()})
		}
		return wire.FromStatusOf(status, time.Time{}), nil
	}
	b := backend(t, remote.Config{}, m)
	status, err := b.Inspect(bounded(t), "a")
	require.NoError(t, err)
	require.Empty(t, status.Holders)

	seen := make(chan int, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- b.Watch(bounded(t), "a", func(s engine.Status) { seen <- len(s.Holders) })
	}()
	require.Zero(t, <-seen)
	m.set(func() { holders = 1 })
	for last := range seen {
		if last == 1 {
			break
		}
	}
	m.set(func() { m.rejects = engine.ErrUncertain })
	require.ErrorIs(t, <-ended, engine.ErrUncertain, "package lease watches again")
	m.set(func() { m.rejects, m.inspect = nil, func() (*pb.Lock, error) { return nil, engine.ErrUnavailable } })
	_, err = b.Inspect(bounded(t), "a")
	require.ErrorIs(t, err, engine.ErrUnavailable, "one try")
}
