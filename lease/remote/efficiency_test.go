package remote_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
	"github.com/leased-project/leased/lease/remote/wire"
)

const ttl = 10 * time.Second

var request = engine.Request{Nonce: 3, Resources: []fencing.Resource{"a", "b"}, Holder: "worker", Metadata: map[string]string{"job": "x"}}

// grants answers every acquire with a token, and everything else with success.
func grants(token uint64) func(*pb.Operation) *pb.Answer {
	return func(op *pb.Operation) *pb.Answer {
		if op.GetAcquire() != nil {
			return &pb.Answer{Token: token, Mode: "efficiency", Name: fmt.Sprint("name of ", token)}
		}
		return &pb.Answer{}
	}
}

func fails(err error) func(*pb.Operation) *pb.Answer {
	return func(*pb.Operation) *pb.Answer { return &pb.Answer{Error: wire.FromError(err)} }
}

func breaks(*pb.Operation) *pb.Answer { return nil }

func TestCallsNameTheirLease(t *testing.T) {
	m := startMember(t)
	m.answer = grants(12)
	e := backend(t, nil, m).Efficiency()
	session := engine.NewSessionID()
	held, err := e.Acquire(patient(t), session, ttl, request)
	require.NoError(t, err)
	require.Equal(t, engine.Held{Name: "name of 12", Session: session, Nonce: 3, Resources: request.Resources, Token: 12, TTL: ttl,
		Holder: "worker", Metadata: request.Metadata}, held)
	require.NoError(t, e.Renew(patient(t), []engine.Held{held})[0])
	require.NoError(t, e.Release(patient(t), held))
	asked := m.operations()
	require.Len(t, asked, 3)
	for _, op := range asked {
		require.Equal(t, session[:], op.Session)
	}
	require.Equal(t, int64(ttl), asked[0].GetAcquire().TtlNanos)
	require.Equal(t, held, wire.ToHeld(session, asked[1].GetRenew().Leases[0]))
	require.Equal(t, held, wire.ToHeld(session, asked[2].GetRelease().Lease))
}

func TestRenewReportsOnEachLease(t *testing.T) {
	m := startMember(t)
	m.answer = func(op *pb.Operation) *pb.Answer {
		return &pb.Answer{Failed: []uint64{2}, Lost: []*pb.Notice{{Nonce: 3, Lost: wire.FromError(engine.ErrTaken)}}}
	}
	e := backend(t, nil, m).Efficiency()
	session, other := engine.NewSessionID(), engine.NewSessionID()
	errs := e.Renew(patient(t), []engine.Held{{Session: other, Nonce: 2}, {Session: session, Nonce: 1}, {Session: session, Nonce: 2}, {Session: session, Nonce: 3}})
	require.Error(t, errs[0], "leases of two sessions are two operations")
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], engine.ErrUncertain)
	require.NotErrorIs(t, errs[2], engine.ErrLost)
	require.ErrorIs(t, errs[3], engine.ErrTaken)
	require.Len(t, m.operations(), 2)

	many := make([]engine.Held, 1000)
	for i := range many {
		many[i] = engine.Held{Session: session, Nonce: engine.Nonce(i + 10), Metadata: map[string]string{"x": string(make([]byte, 4096))}}
	}
	for _, err := range e.Renew(patient(t), many) {
		require.NoError(t, err)
	}
}

// TestAnUnansweredAcquireIsEndedAtTheNextMember: an acquire whose stream broke may
// have been granted, under a name that nobody knows.
func TestAnUnansweredAcquireIsEndedAtTheNextMember(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.answer, b.answer = breaks, breaks
	e := backend(t, nil, a, b).Efficiency()
	granted := make(chan engine.Held, 1)
	go func() {
		held, err := e.Acquire(patient(t), engine.NewSessionID(), ttl, request)
		require.NoError(t, err)
		granted <- held
	}()
	eventually(t, "both were asked", func() bool { return len(a.operations()) > 0 && len(b.operations()) > 0 })
	a.set(func() { a.answer = grants(7) })
	b.set(func() { b.answer = grants(7) })
	held := <-granted
	require.Equal(t, fencing.Token(7), held.Token)
	all := append(a.operations(), b.operations()...)
	var releases int
	for _, op := range all {
		if r := op.GetRelease(); r != nil {
			releases++
			require.Empty(t, r.Lease.Name)
			require.Equal(t, []string{"a", "b"}, r.Lease.Resources)
			require.Equal(t, uint64(3), r.Nonce)
		}
	}
	require.Positive(t, releases, "what the first one may have got is ended first")
}

func TestAMemberThatCannotServeIsLeft(t *testing.T) {
	a, b := startMember(t), startMember(t)
	a.answer, b.answer = fails(engine.ErrUnavailable), fails(engine.ErrUnavailable)
	e := backend(t, nil, a, b).Efficiency()
	_, err := e.Acquire(patient(t), engine.NewSessionID(), ttl, request)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	b.set(func() { b.answer = grants(1) })
	eventually(t, "the other one is asked", func() bool {
		_, err := e.Acquire(patient(t), engine.NewSessionID(), ttl, request)
		return err == nil
	})
	for range 10 {
		_, err := e.Acquire(patient(t), engine.NewSessionID(), ttl, request)
		require.NoError(t, err, "and stays in use")
	}
}

func TestAnswersThatNoOtherMemberCanChange(t *testing.T) {
	for _, want := range []error{
		engine.ErrHeld, engine.ErrUnsupported, &engine.MigratingError{Resource: "a", From: engine.Efficiency, To: engine.Correctness},
		&engine.ModeError{Resource: "a", Want: engine.Efficiency, Have: engine.Correctness},
	} {
		a, b := startMember(t), startMember(t)
		a.answer, b.answer = fails(want), fails(want)
		_, err := backend(t, nil, a, b).Efficiency().Acquire(patient(t), engine.NewSessionID(), ttl, request)
		require.Equal(t, want.Error(), err.Error())
		require.Len(t, append(a.operations(), b.operations()...), 1)
	}
}

func TestTheCallerEndsAnAcquire(t *testing.T) {
	m := startMember(t) // answers nothing
	e := backend(t, []remote.Option{remote.WithPatience(patience)}, m).Efficiency()
	ctx, cancel := context.WithCancel(patient(t))
	ended := make(chan error, 1)
	go func() {
		waiting := request
		waiting.Wait = true
		_, err := e.Acquire(ctx, engine.NewSessionID(), ttl, waiting)
		ended <- err
	}()
	eventually(t, "it was asked", func() bool { return len(m.operations()) == 1 })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
