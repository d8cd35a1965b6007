package leases

import (
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// operation is one operation of a stream, from its arrival until its answer is sent.
type operation struct {
	stream   *stream
	op       *pb.Operation
	id       engine.SessionID
	waiter   *redisWaiter // of an acquire in efficiency mode that waits
	measured metrics.Acquire
	trace    *tracing.Call
	admitted func() // tells the limits of the user that the operation has ended; nil if it was not counted

	answer pb.Answer
	err    error
}

var _ raftstore.Caller = (*operation)(nil)

func (st *stream) newOperation(op *pb.Operation) *operation {
	o := &operation{stream: st, op: op}
	o.answer.Id = op.Id
	if op.GetAcquire() != nil {
		o.measured = st.service.metrics.StartAcquire()
	}
	return o
}

// begin starts an acquire or a release in correctness mode, which needs no goroutine. It
// returns false for any other operation: the caller then calls run on a goroutine.
func (o *operation) begin() bool {
	st := o.stream
	switch call := o.op.Call.(type) {
	case *pb.Operation_Acquire:
		if call.Acquire.GetTtlNanos() != 0 {
			return false
		}
		if err := o.prepare(); err != nil {
			o.end(err)
		} else if err := o.beginAcquire(call.Acquire); err != nil {
			o.end(err)
		}
		return true
	case *pb.Operation_Release:
		if call.Release.GetLease() != nil || len(o.op.Session) != len(engine.SessionID{}) {
			return false
		}
		s, err := st.session(engine.SessionID(o.op.Session))
		if err != nil {
			return false // not a session of this stream; only the state machine knows whether it exists
		}
		if err := o.prepare(); err != nil {
			o.end(err)
		} else if err := s.BeginRelease(engine.Nonce(call.Release.Nonce), o); err != nil {
			o.end(fmt.Errorf("release: %w", err))
		}
		return true
	}
	return false
}

// prepare admits the operation and starts its trace.
func (o *operation) prepare() (err error) {
	if o.admitted, err = o.stream.admit(o.op); err != nil {
		return err
	}
	o.trace = o.stream.service.chain.Trace(o.stream.ctx, o.op)
	if len(o.op.Session) != len(o.id) {
		return fmt.Errorf("%w: a session id has %d bytes, not %d", engine.ErrInvalid, len(o.id), len(o.op.Session))
	}
	o.id = engine.SessionID(o.op.Session)
	return nil
}

// beginAcquire starts an acquire in correctness mode.
func (o *operation) beginAcquire(call *pb.AcquireCall) error {
	request, err := o.request(call)
	if err != nil {
		return err
	}
	s, err := o.stream.session(o.id)
	if err != nil {
		return err
	}
	o.trace.Step(tracing.Commit)
	return s.Begin(o.stream.ctx, request, o)
}

// request returns the request of an acquire within the limits. In efficiency mode it is valid; in correctness mode
// Session.Begin checks that.
func (o *operation) request(call *pb.AcquireCall) (engine.Request, error) {
	st := o.stream
	request, err := wire.ToRequest(call)
	if err == nil {
		err = st.service.limits.CheckRequest(&request)
	}
	if err == nil && call.TtlNanos != 0 {
		err = request.Validate()
	}
	if err != nil {
		return engine.Request{}, err
	}
	if nonce := request.Nonce; request.Wait {
		request.Queued = func() {
			o.trace.Step(tracing.Queue)
			st.notify(o.id, nonce, nil)
		}
	}
	return request, nil
}

// run runs an operation that may block.
func (o *operation) run() {
	err := o.prepare()
	if err == nil {
		err = o.call()
	}
	if o.waiter != nil {
		o.stream.removeWaiter(o.waiter)
	}
	o.end(err)
	o.Flush()
}

// call dispatches an operation that may block: those that name a lease in efficiency mode go
// to the Redis nodes, all others to a session.
func (o *operation) call() error {
	st, a := o.stream, &o.answer
	switch call := o.op.Call.(type) {
	case *pb.Operation_Acquire:
		request, err := o.request(call.Acquire)
		if err != nil {
			return err
		}
		return st.acquireInRedis(o.id, request, call.Acquire.TtlNanos, o.waiter, a, o.trace)
	case *pb.Operation_Renew:
		if len(call.Renew.Leases) > 0 {
			return st.renewInRedis(o.id, call.Renew.Leases, a)
		}
		return st.renewSession(o.id)
	case *pb.Operation_Update:
		return st.update(o.id, call.Update)
	case *pb.Operation_Release:
		if call.Release.Lease != nil {
			return st.releaseInRedis(o.id, call.Release)
		}
		return st.releaseInRaft(o.id, engine.Nonce(call.Release.Nonce))
	case *pb.Operation_Open:
		return st.openSession(o.id, call.Open)
	case *pb.Operation_Attach:
		return st.attachSession(o.id, call.Attach, a)
	case *pb.Operation_Close:
		return st.closeSession(o.id)
	}
	return fmt.Errorf("%w: the operation has no call that this version of the service knows", engine.ErrInvalid)
}

// Done receives the outcome of an operation in correctness mode.
func (o *operation) Done(result machine.Result, err error) {
	switch {
	case o.op.GetAcquire() == nil && err != nil:
		err = fmt.Errorf("release: %w", err)
	case o.op.GetAcquire() != nil && err == nil:
		o.answer.Token, o.answer.Mode, o.answer.Slot = uint64(result.Token), wire.ModeText(result.Mode), int32(result.Slot)
	}
	o.end(err)
}

// Flush makes the stream send the answers.
func (o *operation) Flush() { o.stream.wakeSender() }

// end queues the answer.
func (o *operation) end(err error) {
	o.err = err
	if o.admitted != nil {
		o.admitted()
	}
	o.stream.queue.add(&o.stream.mu, o)
}

// withHolder adds the holder to an error of an acquire in correctness mode that does not wait. It
// reads what this member has applied, which costs no log entry.
func (o *operation) withHolder() error {
	call := o.op.GetAcquire()
	if call == nil || call.TtlNanos != 0 {
		return o.err
	}
	look := func(name fencing.Resource) (engine.Status, int) {
		status, _, waiters := o.stream.service.router.Node.InspectFirst(name, 1)
		return status, waiters
	}
	return withHolder(o.stream.ctx, o.err, wire.Resources(call.Resources...), look)
}

// finish completes the answer, and records it. It may write to the audit log.
func (o *operation) finish() *pb.Answer {
	service, a := o.stream.service, &o.answer
	o.trace.End(a.Token, a.Mode, o.err)
	service.chain.Answered(o.stream.ctx, o.op, a, o.err)
	if o.err != nil {
		o.err = o.withHolder()
		a.Error = wire.FromError(service.router.NameLeader(o.err))
	}
	acquire := o.op.GetAcquire()
	if acquire == nil {
		return a
	}
	mode := engine.Correctness
	if acquire.TtlNanos != 0 {
		mode = engine.Efficiency
	}
	if a.Error != nil {
		o.measured.Refused(mode, a.Error.Code)
	} else {
		o.measured.Granted(mode)
	}
	return a
}
