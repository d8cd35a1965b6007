package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

const ttl = 10 * time.Second

var request = engine.Request{Nonce: 3, Resources: []fencing.Resource{"a", "b"}, Holder: "worker",
	Metadata: map[string]string{"job": "x"}}

// grants answers every acquire with a token, and every other call with success.
func grants(token uint64) func(*pb.Operation) *pb.Answer {
	return func(op *pb.Operation) *pb.Answer {
		answer := &pb.Answer{}
		if op.GetAcquire() != nil {
			return &pb.Answer{Token: token, Mode: "efficiency", Name: fmt.Sprint("name of ", token)}
		}
		for _, l := range op.GetRenew().GetLeases() {
			answer.Holds = append(answer.Holds, &pb.Hold{Nonce: l.Nonce, Token: l.Token})
		}
		return answer
	}
}

func fails(err error) func(*pb.Operation) *pb.Answer {
	return func(*pb.Operation) *pb.Answer { return &pb.Answer{Error: wire.FromError(err)} }
}

func breaks(*pb.Operation) *pb.Answer { return nil }

func TestCallsCarryTheirLease(t *testing.T) {
	m := startMember(t)
	m.answer = grants(12)
	e := backend(t, remote.Config{}, m).Efficiency()
	session := engine.NewSessionID()
	held, err := e.Acquire(bounded(t), session, ttl, request)
	require.NoError(t, err)
	require.Equal(t, engine.Held{Name: "name of 12", Session: session, Nonce: 3, Resources: request.Resources, Token: 12,
		TTL:    ttl,
		Holder: "worker", Metadata: request.Metadata}, held)
	require.NoError(t, e.Renew(bounded(t), []engine.Held{held})[0])
	require.NoError(t, e.Release(bounded(t), held))
	received := m.operations()
	require.Len(t, received, 3)
	for _, op := range received {
		require.Equal(t, session[:], op.Session)
	}
	require.Equal(t, int64(ttl), received[0].GetAcquire().TtlNanos)
	require.Equal(t, held, wire.ToHeld(session, received[1].GetRenew().Leases[0]))
	require.Equal(t, held, wire.ToHeld(session, received[2].GetRelease().Lease))
}

func TestRenewReportsEachLease(t *testing.T) {
	m := startMember(t)
	m.answer = func(op *pb.Operation) *pb.Answer {
		answer := &pb.Answer{Lost: []*pb.Notice{{Nonce: 3, Lost: wire.FromError(engine.ErrTaken)}}}
		for _, l := range op.GetRenew().Leases {
			if l.Nonce != 2 && l.Nonce != 3 {
				answer.Holds = append(answer.Holds, &pb.Hold{Nonce: l.Nonce, Token: l.Token})
			}
		}
		return answer
	}
	e := backend(t, remote.Config{}, m).Efficiency()
	session := engine.NewSessionID()
	errs := e.Renew(bounded(t), []engine.Held{{Session: session, Nonce: 1}, {Session: session, Nonce: 2},
		{Session: session, Nonce: 3}})
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrUncertain)
	require.NotErrorIs(t, errs[1], engine.ErrLost)
	require.ErrorIs(t, errs[2], engine.ErrTaken)
	require.Len(t, m.operations(), 1)

	many := make([]engine.Held, 1000)
	for i := range many {
		many[i] = engine.Held{Session: session, Nonce: engine.Nonce(i + 10),
			Metadata: map[string]string{"x": string(make([]byte, 4096))}}
	}
	eventually(t, "all are renewed", func() bool { return errors.Join(e.Renew(bounded(t), many)...) == nil })
}

// TestUnansweredAcquireIsReleasedBeforeTheNext checks that a session releases what an
// acquire without an answer may have been granted, under a name that it never learned.
func TestUnansweredAcquireIsReleasedBeforeTheNext(t *testing.T) {
	m := startMember(t)
	m.answer = breaks
	s, _, _ := openSession(t, backend(t, remote.Config{}, m).Efficiency())
	_, err := s.Acquire(bounded(t), request)
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.Equal(t, []string{"acquire"}, calls(m), "one try")
	m.set(func() { m.answer = grants(7) })
	again := request
	again.Repeated = true
	grant, err := s.Acquire(bounded(t), again)
	require.NoError(t, err)
	require.Equal(t, fencing.Token(7), grant.Token)
	require.Equal(t, []string{"acquire", "release", "acquire"}, calls(m))
	release := m.operations()[1].GetRelease()
	require.Empty(t, release.Lease.Name)
	require.Equal(t, []string{"a", "b"}, release.Lease.Resources)
	require.Equal(t, uint64(3), release.Nonce)
}

func TestMemberThatCannotServeIsReplaced(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.answer, b.answer = fails(engine.ErrUnavailable), fails(engine.ErrUnavailable)
	e := backend(t, remote.Config{}, a, b).Efficiency()
	_, err := e.Acquire(bounded(t), engine.NewSessionID(), ttl, request)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	b.set(func() { b.answer = grants(1) })
	eventually(t, "the other member is used", func() bool {
		_, err := e.Acquire(bounded(t), engine.NewSessionID(), ttl, request)
		return err == nil
	})
	for range 10 {
		_, err := e.Acquire(bounded(t), engine.NewSessionID(), ttl, request)
		require.NoError(t, err, "and stays in use")
	}
}

// So is a member that does not confirm renewals or releases, such as one without a route to the Redis nodes.
func TestMemberThatConfirmsNothingIsReplaced(t *testing.T) {
	held := engine.Held{Session: engine.NewSessionID(), Nonce: 1, Token: 2}
	for name, ask := range map[string]func(context.Context, *remote.Efficiency) error{
		"renew":   func(ctx context.Context, e *remote.Efficiency) error { return e.Renew(ctx, []engine.Held{held})[0] },
		"release": func(ctx context.Context, e *remote.Efficiency) error { return e.Release(ctx, held) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newNetwork()
				a, _ := network.start(t, "a:7420")
				b, _ := network.start(t, "b:7420")
				var first atomic.Pointer[member] // that was used
				for _, m := range []*member{a, b} {
					m.answer = func(op *pb.Operation) *pb.Answer {
						if first.CompareAndSwap(nil, m); first.Load() != m {
							return &pb.Answer{Holds: []*pb.Hold{{Nonce: 1, Token: 2}}}
						}
						if op.GetRelease() != nil {
							return fails(engine.ErrUncertain)(op)
						}
						return &pb.Answer{}
					}
				}
				e := backend(t, network.config(), a, b).Efficiency()
				require.ErrorIs(t, ask(limited(t), e), engine.ErrUncertain)
				time.Sleep(2 * time.Second)
				_ = ask(limited(t), e)
				require.NoError(t, ask(limited(t), e))
			})
		})
	}
}

// The member that was left still has waiting acquires. If the caller of one goes, its release reaches another member,
// which cannot withdraw it. So the stream ends, and the others ask again elsewhere.
func TestWaitersOfAMemberThatWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		a, _ := network.start(t, "a:7420")
		b, _ := network.start(t, "b:7420")
		for _, m := range []*member{a, b} {
			m.answer = func(op *pb.Operation) *pb.Answer {
				if op.GetAcquire() != nil {
					return waits
				}
				return &pb.Answer{}
			}
		}
		e := backend(t, network.config(), a, b).Efficiency()
		waiting := func(ctx context.Context, nonce engine.Nonce) <-chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := e.Acquire(ctx, engine.NewSessionID(), ttl, engine.Request{Nonce: nonce,
					Resources: []fencing.Resource{"a"}, Wait: true})
				ended <- err
			}()
			return ended
		}
		ctx, cancel := context.WithCancel(limited(t))
		gone, stays := waiting(ctx, 1), waiting(limited(t), 2)
		time.Sleep(2 * time.Second)
		require.Error(t, e.Renew(limited(t), []engine.Held{{Session: engine.NewSessionID(), Nonce: 3, Token: 1}})[0])
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		err := <-stays
		require.ErrorIs(t, err, engine.ErrUncertain)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAnswerIsReturnedAfterOneTry(t *testing.T) {
	for _, want := range []error{
		engine.ErrHeld, engine.ErrUnsupported, &engine.MigratingError{Resource: "a", From: engine.Efficiency,
			To: engine.Correctness},
		&engine.ModeError{Resource: "a", Want: engine.Efficiency, Have: engine.Correctness},
	} {
		a, b := startMember(t), startMember(t)
		a.answer, b.answer = fails(want), fails(want)
		_, err := backend(t, remote.Config{}, a, b).Efficiency().Acquire(bounded(t), engine.NewSessionID(), ttl, request)
		require.Equal(t, want.Error(), err.Error())
		require.Len(t, append(a.operations(), b.operations()...), 1)
	}
}

func TestCallerCancelsAnAcquire(t *testing.T) {
	m := startMember(t) // sends no answer
	e := backend(t, remote.Config{Timeout: testTimeout}, m).Efficiency()
	ctx, cancel := context.WithCancel(bounded(t))
	ended := make(chan error, 1)
	go func() {
		waiting := request
		waiting.Wait = true
		_, err := e.Acquire(ctx, engine.NewSessionID(), ttl, waiting)
		ended <- err
	}()
	eventually(t, "the member received it", func() bool { return len(m.operations()) == 1 })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A member that does not know the caller has not read the operation, which goes to
// another member. Both connections may encode it at the same time.
func TestRejectedOperationGoesToAnotherMember(t *testing.T) {
	knows := startMember(t)
	knows.answer = grants(7)
	for range 20 {
		rejects := startMember(t)
		rejects.rejects = wire.ErrUnauthenticated
		s, err := backend(t, remote.Config{}, rejects, knows).Efficiency().Open(bounded(t),
			engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
		require.NoError(t, err)
		grant, err := s.Acquire(bounded(t), one(1))
		require.NoError(t, err)
		require.Equal(t, fencing.Token(7), grant.Token)
	}
}

// A release that a member could not make is an error: the lock is still held.
func TestFailedReleaseIsReported(t *testing.T) {
	m := startMember(t)
	m.answer = fails(engine.ErrUnavailable)
	e := backend(t, remote.Config{}, m).Efficiency()
	held := engine.Held{Name: "name", Session: engine.NewSessionID(), Nonce: 1, Resources: request.Resources, Token: 1,
		TTL: ttl}
	require.ErrorIs(t, e.Release(bounded(t), held), engine.ErrUnavailable)
}
