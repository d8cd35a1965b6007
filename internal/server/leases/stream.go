package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// attempt is the identity of an acquisition attempt.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

// stream is the session stream of one client. Its operations run concurrently. Operations
// in correctness mode have no goroutine, because the Raft log answers many of them at once.
// Answers that are ready while a message is being sent share the next message.
type stream struct {
	service *Service
	account *limits.Account
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	queue    queue
	sessions map[engine.SessionID]*raftstore.Session
	waiters  map[attempt]*redisWaiter
	known    knownLeases // has its own lock

	wake    chan struct{} // there is something to send
	slots   chan struct{} // one element for each operation whose answer was not sent
	waiting atomic.Int32  // operations that may wait for a lock
}

// Session serves the stream of one client. It returns an error if the client does
// not read its notices: its sessions then stay open, as if the client had reconnected.
func (s *Service) Session(server pb.LeaseService_SessionServer) error {
	st := &stream{service: s, sessions: map[engine.SessionID]*raftstore.Session{}, waiters: map[attempt]*redisWaiter{},
		wake: make(chan struct{}, 1), slots: make(chan struct{}, maxOperations)}
	st.account = s.limits.Of(server.Context())
	st.ctx, st.cancel = context.WithCancelCause(server.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		st.send(server)
		st.queue.close(&st.mu)
	})
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
			st.detach()
			return errNotices
		}
		<-received
		sending.Wait()
	}
	return nil
}

// receive runs the operations of the client until the stream ends. Operations of one
// message are proposed together.
func (st *stream) receive(server pb.LeaseService_SessionServer) {
	var work sync.WaitGroup
	defer func() {
		st.flush()
		st.cancel(nil)
		st.detach()
		work.Wait()
	}()
	for {
		message, err := server.Recv()
		if err != nil {
			return // the client is gone or reconnects: its sessions stay open
		}
		for _, op := range message.Operations {
			if !st.takeSlot() {
				return
			}
			if o := st.newOperation(op); !o.begin() {
				o.waiter = st.addWaiter(op)
				work.Go(o.run)
			}
		}
		st.flush()
	}
}

// flush proposes the operations that were started, and sends the answers of operations that
// were refused immediately.
func (st *stream) flush() {
	st.service.router.Raft.Flush()
	st.wakeSender()
}

// takeSlot takes a slot for an operation. If there is none it flushes first: only answers free
// slots. It returns false if the stream has ended.
func (st *stream) takeSlot() bool {
	if st.ctx.Err() != nil {
		return false
	}
	select {
	case st.slots <- struct{}{}:
		return true
	default:
	}
	st.flush()
	select {
	case st.slots <- struct{}{}:
		return true
	case <-st.ctx.Done():
		return false
	}
}

// admit checks an operation, and counts it against the limits of the user until done is
// called.
func (st *stream) admit(op *pb.Operation) (done func(), err error) {
	if err := st.service.chain.Admit(st.ctx, st.account, op); err != nil {
		return nil, err
	}
	if op.GetAcquire().GetWait() {
		return st.admitWaiter()
	}
	return func() {}, nil
}

// admitWaiter counts an acquire that may wait.
func (st *stream) admitWaiter() (done func(), err error) {
	if st.waiting.Add(1) > maxWaiting {
		st.waiting.Add(-1)
		return nil, fmt.Errorf("%w: %d acquires wait on this stream; use another connection, or wait for fewer locks at once",
			engine.ErrLimit, maxWaiting)
	}
	leave, err := st.account.Wait()
	if err != nil {
		st.waiting.Add(-1)
		return nil, err
	}
	return func() { leave(); st.waiting.Add(-1) }, nil
}
