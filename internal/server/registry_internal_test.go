package server

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore"
)

// idle is a service that nobody reaches from outside, and that sweeps when it is
// told to. Its clock can leap; that of the Raft machine does not, so that sessions
// live on.
type idle struct {
	*service
	clock *leasetest.Clock
}

const idleTTL = time.Hour

func startIdle(t *testing.T) idle {
	t.Helper()
	quiet, feed := slog.New(slog.DiscardHandler), NewFeed()
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Dir: t.TempDir(), Address: "127.0.0.1:0", Logger: quiet, Observer: feed})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.Bootstrap())
	require.Eventually(t, node.Leads, time.Minute, time.Millisecond)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	clock := leasetest.NewClock()
	s, err := New(Config{Node: node, Feed: feed, Logger: quiet, Clock: clock}, listener)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return idle{s.lease, clock}
}

// leap lets more time pass than a session is kept in mind.
func (s idle) leap() { s.clock.Suspend(2*idleTTL + 2*sweepGrace) }

func (s idle) openSession(t *testing.T) engine.SessionID {
	t.Helper()
	opened, err := s.OpenSession(context.Background(), &pb.OpenSessionRequest{Ttl: idleTTL.String()})
	require.NoError(t, err)
	id, err := engine.ParseSessionID(opened.SessionId)
	require.NoError(t, err)
	return id
}

func (s idle) acquire(id engine.SessionID, name string, nonce uint64) (*pb.AcquireResponse, error) {
	return s.Acquire(context.Background(), &pb.AcquireRequest{Resource: name, SessionId: id.String(), Nonce: nonce})
}

// TestASessionInUseIsKept: calls that find the session count as much as a renewal.
func TestASessionInUseIsKept(t *testing.T) {
	s := startIdle(t)
	id := s.openSession(t)
	for name, use := range map[string]func() error{
		"opened again": func() error { _, err := s.sessions.open(context.Background(), id, idleTTL); return err },
		"attached":     func() error { _, err := s.acquire(id, "a", 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s.leap()
			require.NoError(t, use())
			s.sessions.sweep()
			require.NotNil(t, s.sessions.find(id))
		})
	}
	s.leap()
	s.sessions.sweep()
	require.Nil(t, s.sessions.find(id), "what nobody uses is forgotten")
}

// TestASessionFoundAgainCountsOn: a session that this member had forgotten, and
// that lives, does not get a nonce that it had before.
func TestASessionFoundAgainCountsOn(t *testing.T) {
	s := startIdle(t)
	other := s.openSession(t)
	_, err := s.acquire(other, "b", 0)
	require.NoError(t, err)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 0)
	require.NoError(t, err)
	refused, err := s.sessions.find(id).nextNonce(context.Background()) // as of an attempt that has ended
	require.NoError(t, err)
	require.NoError(t, s.sessions.find(id).Release(context.Background(), refused))

	s.leap()
	s.sessions.sweep()
	_, err = s.acquire(id, "b", 0)
	require.ErrorIs(t, err, engine.ErrHeld, "the other has it")
	next, err := s.acquire(id, "c", 0)
	require.NoError(t, err)
	require.Greater(t, next.Nonce, granted.Nonce)
	require.Greater(t, next.Nonce, uint64(refused)+1, "one for b, and one for c")
}

// TestNoncesOfTheClientAreLeftAlone: what the session holds under nonces that
// this member has not chosen is not taken for a new attempt.
func TestNoncesOfTheClientAreLeftAlone(t *testing.T) {
	s := startIdle(t)
	id := s.openSession(t)
	ctx := context.Background()
	first, err := s.sessions.find(id).firstNonce(ctx, id)
	require.NoError(t, err)
	_, err = s.sessions.find(id).Acquire(ctx, engine.Request{Nonce: first + 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	next, err := s.acquire(id, "b", 0)
	require.NoError(t, err)
	require.Greater(t, next.Nonce, uint64(first+1))
}

// TestANonceIsForOneThing: an attempt that is asked for again with something else
// is refused, also by a member that has not seen it made.
func TestANonceIsForOneThing(t *testing.T) {
	s := startIdle(t)
	id := s.openSession(t)
	granted, err := s.acquire(id, "a", 7)
	require.NoError(t, err)
	for name, before := range map[string]func(){
		"known here":  func() {},
		"found again": func() { s.leap(); s.sessions.sweep() },
	} {
		t.Run(name, func(t *testing.T) {
			before()
			_, err := s.acquire(id, "b", 7)
			require.ErrorIs(t, err, engine.ErrInvalid)
			_, err = s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", Shared: true, SessionId: id.String(), Nonce: 7})
			require.ErrorIs(t, err, engine.ErrInvalid, "nor is it shared")
			again, err := s.acquire(id, "a", 7)
			require.NoError(t, err, "asked again as it was, it has one outcome")
			require.Equal(t, granted.Token, again.Token)
		})
	}
}

// TestAnotherTTLIsRefused: who counts on another time than the session has is
// told, and the session stays as it is.
func TestAnotherTTLIsRefused(t *testing.T) {
	s := startIdle(t)
	id := s.openSession(t)
	ctx := context.Background()
	open := func(ttl string) error {
		_, err := s.OpenSession(ctx, &pb.OpenSessionRequest{SessionId: id.String(), Ttl: ttl})
		return err
	}
	require.ErrorIs(t, open("1m"), engine.ErrInvalid)
	require.NoError(t, open(idleTTL.String()))
	_, err := s.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: id.String()})
	require.NoError(t, err)
	require.NoError(t, open("1m"), "it has ended")
}

// TestAStreamForgetsWhatWasClosed: a client that keeps its stream and opens and
// closes sessions on it leaves nothing behind.
func TestAStreamForgetsWhatWasClosed(t *testing.T) {
	s := startIdle(t)
	st := &stream{service: s.service, ctx: context.Background(), sessions: map[engine.SessionID]*session{}}
	id := engine.NewSessionID()
	call := func(op *pb.Operation) error {
		op.Session = id[:]
		return st.call(op, nil, &pb.Answer{})
	}
	require.NoError(t, call(&pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(idleTTL)}}}))
	e := st.session(id)
	require.Contains(t, e.listeners, st)
	require.NoError(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}))
	require.Empty(t, st.sessions)
	require.Empty(t, e.listeners)

	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}), engine.ErrLost, "a copy of the call")
	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}}), engine.ErrLost)
	id = s.openSession(t)
	require.ErrorIs(t, call(&pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}), engine.ErrInvalid, "it is not this stream's")
	require.NotNil(t, s.sessions.find(id))
}
