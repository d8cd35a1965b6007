package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// attempt is the identity of an acquisition attempt.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

// stream is the session stream of one client. Its operations run concurrently.
// Answers that are ready while a message is being sent share the next message.
type stream struct {
	service *Service
	account *limits.Account
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	queue    queue
	sessions map[engine.SessionID]*session
	waiters  map[attempt]*redisWaiter
	known    knownLeases // has its own lock

	wake    chan struct{} // there is something to send
	slots   chan struct{} // one element for each operation whose answer was not sent
	waiting atomic.Int32  // operations that may wait for a lock
}

// Session serves the stream of one client. It returns an error if the client does
// not read its notices: its sessions then stay open, as if the client had reconnected.
func (s *Service) Session(server pb.LeaseService_SessionServer) error {
	st := &stream{service: s, sessions: map[engine.SessionID]*session{}, waiters: map[attempt]*redisWaiter{},
		wake: make(chan struct{}, 1), slots: make(chan struct{}, maxOperations)}
	st.account = s.limits.Of(server.Context())
	st.ctx, st.cancel = context.WithCancelCause(server.Context())
	var sending sync.WaitGroup
	sending.Go(func() { st.send(server) })
	received := make(chan struct{})
	go func() {
		defer close(received)
		st.receive(server)
	}()
	select {
	case <-received:
		sending.Wait()
	case <-st.ctx.Done():
		if errors.Is(context.Cause(st.ctx), errNotices) { // gRPC ends Recv and Send when this call has returned
			st.unlisten()
			return errNotices
		}
		<-received
		sending.Wait()
	}
	return nil
}

// receive runs the operations of the client until the stream ends.
func (st *stream) receive(server pb.LeaseService_SessionServer) {
	var work sync.WaitGroup
	defer func() {
		st.cancel(nil)
		st.unlisten()
		work.Wait()
	}()
	for {
		message, err := server.Recv()
		if err != nil {
			return // the client is gone or reconnects: its sessions stay open
		}
		for _, op := range message.Operations {
			select {
			case st.slots <- struct{}{}:
			case <-st.ctx.Done():
				return
			}
			w := st.addWaiter(op)
			work.Go(func() { st.answer(st.run(op, w)) })
		}
	}
}

// admit counts an operation against the limits of the user until done is called.
func (st *stream) admit(op *pb.Operation) (done func(), err error) {
	if err := st.service.limits.CheckOperation(op); err != nil {
		return nil, err
	}
	switch call := op.Call.(type) {
	case *pb.Operation_Renew, *pb.Operation_Release, *pb.Operation_Close:
		err = st.account.Keep()
	case *pb.Operation_Acquire:
		if err = st.account.Request(); err == nil && call.Acquire.Wait {
			return st.admitWaiter()
		}
	default:
		err = st.account.Request()
	}
	return func() {}, err
}

// admitWaiter counts an acquire that may wait.
func (st *stream) admitWaiter() (done func(), err error) {
	if st.waiting.Add(1) > maxWaiting {
		st.waiting.Add(-1)
		return nil, fmt.Errorf("%w: %d acquires wait on this stream; use another connection, or wait for fewer locks at once", engine.ErrLimit, maxWaiting)
	}
	leave, err := st.account.Wait()
	if err != nil {
		st.waiting.Add(-1)
		return nil, err
	}
	return func() { leave(); st.waiting.Add(-1) }, nil
}

// run runs one operation.
func (st *stream) run(op *pb.Operation, w *redisWaiter) *pb.Answer {
	if w != nil {
		defer st.removeWaiter(w)
	}
	a := &pb.Answer{Id: op.Id}
	acquire, isAcquire := op.Call.(*pb.Operation_Acquire)
	var measured metrics.Acquire
	if isAcquire {
		measured = st.service.Metrics.StartAcquire()
	}
	done, err := st.admit(op)
	if err == nil {
		trace := st.service.traceOperation(st.ctx, op)
		err = st.call(op, w, a, trace)
		trace.End(a.Token, a.Mode, err)
		done()
	}
	st.service.audit.Operation(st.ctx, op, a, err)
	if err != nil {
		a.Error = wire.FromError(st.service.router.NameLeader(err))
	}
	if isAcquire {
		measure(measured, acquire.Acquire, a)
	}
	return a
}

// measure records the answer to an acquire.
func measure(measured metrics.Acquire, call *pb.AcquireCall, a *pb.Answer) {
	mode := engine.Correctness
	if call.GetTtlNanos() != 0 {
		mode = engine.Efficiency
	}
	if a.Error != nil {
		measured.Refused(mode, a.Error.Code)
		return
	}
	measured.Granted(mode)
}

// call dispatches an operation: those that name a lease in efficiency mode go to
// the Redis nodes, all others to a session.
func (st *stream) call(op *pb.Operation, w *redisWaiter, a *pb.Answer, trace *tracing.Call) error {
	if len(op.Session) != len(engine.SessionID{}) {
		return fmt.Errorf("%w: a session id has %d bytes, not %d", engine.ErrInvalid, len(engine.SessionID{}), len(op.Session))
	}
	id := engine.SessionID(op.Session)
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		request, err := wire.ToRequest(call.Acquire)
		if err == nil {
			err = st.service.limits.CheckRequest(&request)
		}
		if err == nil {
			err = request.Validate()
		}
		if err != nil {
			return err
		}
		for _, name := range request.Resources {
			if err := auth.Allow(st.ctx, auth.Acquire, string(name)); err != nil {
				return err
			}
		}
		if request.Wait {
			request.Queued = func() {
				trace.Step(tracing.Queue)
				st.notify(id, request.Nonce, nil)
			}
		}
		if call.Acquire.TtlNanos != 0 {
			return st.acquireInRedis(id, request, call.Acquire.TtlNanos, w, a, trace)
		}
		return st.acquireInRaft(id, request, a, trace)
	case *pb.Operation_Renew:
		if len(call.Renew.Leases) > 0 {
			return st.renewInRedis(id, call.Renew.Leases, a)
		}
		return st.renewSession(id, a)
	case *pb.Operation_Release:
		if call.Release.Lease != nil {
			return st.releaseInRedis(id, call.Release)
		}
		return st.releaseInRaft(id, engine.Nonce(call.Release.Nonce))
	case *pb.Operation_Open:
		return st.openSession(id, call.Open)
	case *pb.Operation_Attach:
		return st.attachSession(id, a)
	case *pb.Operation_Close:
		return st.closeSession(id)
	}
	return fmt.Errorf("%w: the operation has no call that this version of the service knows", engine.ErrInvalid)
}
