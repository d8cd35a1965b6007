package leases

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
//
// A member may have tens of thousands of streams that are idle, and the stacks of their
// goroutines are most of its memory: an idle stream has only the goroutine that receives.
type stream struct {
	service *Service
	server  pb.LeaseService_SessionServer
	account *limits.Account
	ctx     context.Context
	cancel  context.CancelFunc

	mu       sync.Mutex
	queue    queue
	sessions map[engine.SessionID]*raftstore.Session
	waiters  map[attempt]*redisWaiter
	known    knownLeases // has its own lock

	sending sync.WaitGroup // of the sender, if there is one
	alive   *time.Timer    // sends a message when it is due
	slots   chan struct{}  // one element for each operation whose answer was not sent
	waiting atomic.Int32   // operations that may wait for a lock
}

func newStream(s *Service, server pb.LeaseService_SessionServer) *stream {
	st := &stream{service: s, server: server, account: s.limits.Of(server.Context()),
		sessions: map[engine.SessionID]*raftstore.Session{}, waiters: map[attempt]*redisWaiter{},
		slots: make(chan struct{}, maxOperations)}
	st.ctx, st.cancel = context.WithCancel(server.Context())
	st.startHeartbeat()
	return st
}

// Session serves the stream of one client. It ends the stream with an error if the client does
// not read its notices: its sessions then stay open, as if the client had reconnected.
func (s *Service) Session(server pb.LeaseService_SessionServer) error {
	st := newStream(s, server)
	st.receive()
	st.close()
	return nil
}

// receive runs the operations of the client until the stream ends. Operations of one
// message are proposed together.
func (st *stream) receive() {
	var work sync.WaitGroup
	defer func() {
		st.flush()
		st.cancel()
		st.detach()
		work.Wait()
	}()
	for {
		message, err := st.server.Recv()
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
