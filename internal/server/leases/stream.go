package leases

import (
	"context"
	"fmt"
	"sync"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// maxOperations bounds the running operations of one stream. Beyond it the service
// reads nothing from the client, which slows the client down.
const maxOperations = 1 << 16

// attempt is the identity of an acquisition attempt.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

// stream is the session stream of one client. Its operations run concurrently.
// Answers that are ready while a message is being sent share the next message.
type stream struct {
	service *Service
	ctx     context.Context

	mu       sync.Mutex
	out      *pb.SessionResponse // the next message
	sessions map[engine.SessionID]*session
	waiters  map[attempt]*redisWaiter

	wake  chan struct{} // there is something to send
	slots chan struct{} // one element for each running operation
}

// Session serves the stream of one client.
func (s *Service) Session(server pb.LeaseService_SessionServer) error {
	ctx, cancel := context.WithCancel(server.Context())
	st := &stream{service: s, ctx: ctx, out: &pb.SessionResponse{}, sessions: map[engine.SessionID]*session{},
		waiters: map[attempt]*redisWaiter{}, wake: make(chan struct{}, 1), slots: make(chan struct{}, maxOperations)}
	var work sync.WaitGroup
	defer func() {
		cancel()
		st.unlisten()
		work.Wait()
	}()
	work.Go(func() { st.send(server) })
	for {
		message, err := server.Recv()
		if err != nil {
			return nil // the client is gone or reconnects: its sessions stay open
		}
		for _, op := range message.Operations {
			select {
			case st.slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			w := st.addWaiter(op)
			work.Go(func() {
				st.answer(st.run(op, w))
				<-st.slots
			})
		}
	}
}

// send writes messages until the stream ends.
func (st *stream) send(server pb.LeaseService_SessionServer) {
	for {
		select {
		case <-st.wake:
		case <-st.ctx.Done():
			return
		}
		st.mu.Lock()
		message := st.out
		st.out = &pb.SessionResponse{}
		st.mu.Unlock()
		if len(message.Answers)+len(message.Notices) == 0 {
			continue
		}
		if server.Send(message) != nil {
			return // Recv fails too, and ends the stream
		}
	}
}

// push adds to the next message.
func (st *stream) push(add func(message *pb.SessionResponse)) {
	st.mu.Lock()
	add(st.out)
	st.mu.Unlock()
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (st *stream) answer(a *pb.Answer) {
	st.push(func(m *pb.SessionResponse) { m.Answers = append(m.Answers, a) })
}

// notify reports a lost lease, or without an error an attempt that waits.
func (st *stream) notify(id engine.SessionID, nonce engine.Nonce, lost error) {
	n := &pb.Notice{Session: id[:], Nonce: uint64(nonce), Lost: wire.FromError(lost)}
	st.push(func(m *pb.SessionResponse) { m.Notices = append(m.Notices, n) })
}

// run runs one operation.
func (st *stream) run(op *pb.Operation, w *redisWaiter) *pb.Answer {
	if w != nil {
		defer st.removeWaiter(w)
	}
	a := &pb.Answer{Id: op.Id}
	err := st.call(op, w, a)
	st.service.audit.Operation(st.ctx, op, a, err)
	if err != nil {
		a.Error = wire.FromError(st.service.router.NameLeader(err))
	}
	return a
}

// call dispatches an operation: those that name a lease in efficiency mode go to
// the Redis nodes, all others to a session.
func (st *stream) call(op *pb.Operation, w *redisWaiter, a *pb.Answer) error {
	if len(op.Session) != len(engine.SessionID{}) {
		return fmt.Errorf("%w: a session id has %d bytes, not %d", engine.ErrInvalid, len(engine.SessionID{}), len(op.Session))
	}
	id := engine.SessionID(op.Session)
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		request, err := wire.ToRequest(call.Acquire)
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
			request.Queued = func() { st.notify(id, request.Nonce, nil) }
		}
		if call.Acquire.TtlNanos != 0 {
			return st.acquireInRedis(id, request, call.Acquire.TtlNanos, w, a)
		}
		return st.acquireInRaft(id, request, a)
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
