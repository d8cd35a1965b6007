package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// maxOperations bounds the operations of one stream that are under way; beyond it
// the client is not read, and so slows down.
const maxOperations = 1 << 16

// stream is one client's session stream. Its operations run concurrently. Answers
// that come while a message is being sent share the next message.
type stream struct {
	service *service
	ctx     context.Context

	mu       sync.Mutex
	out      *pb.SessionResponse // to be sent
	sessions map[engine.SessionID]*session
	waits    map[attempt]*waiting // in efficiency mode

	wake chan struct{} // there is something to send
	room chan struct{} // one token for each operation under way
}

// Session serves one client's stream.
func (s *service) Session(server pb.LeaseService_SessionServer) error {
	ctx, cancel := context.WithCancel(server.Context())
	st := &stream{service: s, ctx: ctx, out: &pb.SessionResponse{}, sessions: map[engine.SessionID]*session{},
		waits: map[attempt]*waiting{}, wake: make(chan struct{}, 1), room: make(chan struct{}, maxOperations)}
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
			return nil // the client is gone, or will come again: its sessions live on
		}
		for _, op := range message.Operations {
			select {
			case st.room <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			w := st.expect(op)
			work.Go(func() {
				st.answer(st.run(op, w))
				<-st.room
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
			return // the reader will see it too
		}
	}
}

func (st *stream) wakeSender() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (st *stream) answer(a *pb.Answer) {
	st.mu.Lock()
	st.out.Answers = append(st.out.Answers, a)
	st.mu.Unlock()
	st.wakeSender()
}

func (st *stream) notify(n *pb.Notice) {
	st.mu.Lock()
	st.out.Notices = append(st.out.Notices, n)
	st.mu.Unlock()
	st.wakeSender()
}

func (st *stream) notifyLost(id engine.SessionID, nonce engine.Nonce, err error) {
	st.notify(&pb.Notice{Session: id[:], Nonce: uint64(nonce), Lost: wire.FromError(err)})
}

func (st *stream) notifyQueued(id engine.SessionID, nonce engine.Nonce) {
	st.notify(&pb.Notice{Session: id[:], Nonce: uint64(nonce)})
}

func (st *stream) unlisten() {
	st.mu.Lock()
	sessions := st.sessions
	st.sessions = map[engine.SessionID]*session{}
	st.mu.Unlock()
	for _, s := range sessions {
		s.unlisten(st)
	}
}

// run does one operation.
func (st *stream) run(op *pb.Operation, w *waiting) *pb.Answer {
	a := &pb.Answer{Id: op.Id}
	if err := st.call(op, w, a); err != nil {
		a.Error = wire.FromError(st.service.explain(err))
	}
	return a
}

func (st *stream) call(op *pb.Operation, w *waiting, a *pb.Answer) error {
	if len(op.Session) != len(engine.SessionID{}) {
		return fmt.Errorf("%w: a session id has %d bytes, not %d", engine.ErrInvalid, len(engine.SessionID{}), len(op.Session))
	}
	id := engine.SessionID(op.Session)
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		if call.Acquire.TtlNanos != 0 {
			return st.acquireEfficiency(id, call.Acquire, w, a)
		}
	case *pb.Operation_Renew:
		if len(call.Renew.Leases) > 0 {
			return st.renewEfficiency(id, call.Renew.Leases, a)
		}
	case *pb.Operation_Release:
		if call.Release.Lease != nil {
			return st.releaseEfficiency(id, call.Release)
		}
	case *pb.Operation_Open:
		s, err := st.service.sessions.open(st.ctx, id, time.Duration(call.Open.TtlNanos))
		return st.know(s, err)
	case *pb.Operation_Attach:
		s, err := st.service.sessions.attach(st.ctx, id)
		if err := st.know(s, err); err != nil {
			return err
		}
		return st.holds(s, a)
	}
	return st.callSession(id, op, a)
}

// callSession does an operation on a session of the correctness mode.
func (st *stream) callSession(id engine.SessionID, op *pb.Operation, a *pb.Answer) error {
	s := st.session(id)
	if s == nil {
		return st.unknown(id, op)
	}
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		return st.acquire(s, call.Acquire, a)
	case *pb.Operation_Renew:
		failed, err := s.Renew(st.ctx)
		for _, nonce := range failed {
			a.Failed = append(a.Failed, uint64(nonce))
		}
		return err
	case *pb.Operation_Release:
		return s.Release(st.ctx, engine.Nonce(call.Release.Nonce))
	case *pb.Operation_Close:
		err := s.Close(st.ctx)
		if err == nil {
			st.part(s)
		}
		return err
	}
	return fmt.Errorf("%w: an operation without a call that this service knows", engine.ErrInvalid)
}

// know makes the stream hear of a session's losses. The operations of a stream are
// for the incarnation that it met first. A late copy of the client's request to
// open the session may meet another one, after the end of the first, and must not
// hide that end from the client.
func (st *stream) know(s *session, err error) error {
	if err != nil {
		return err
	}
	st.mu.Lock()
	if known := st.sessions[s.id]; known != nil && known.raft.Incarnation() != s.raft.Incarnation() {
		st.mu.Unlock()
		return fmt.Errorf("%w: session %s, as this stream knows it, has ended; open one with another id", engine.ErrExpired, s.id)
	}
	st.sessions[s.id] = s
	st.mu.Unlock()
	s.listen(st)
	if st.ctx.Err() != nil { // the stream may have left its sessions by now
		s.unlisten(st)
	}
	return nil
}

// part is the opposite of know, for a session that its client has closed. One that
// ended otherwise stays: the client may not have heard of it.
func (st *stream) part(s *session) {
	st.mu.Lock()
	if st.sessions[s.id] == s {
		delete(st.sessions, s.id)
	}
	st.mu.Unlock()
	s.unlisten(st)
}

// unknown answers an operation on a session that the stream does not know. If the
// session was closed here, another copy of the close, or a release, has what it
// wanted.
func (st *stream) unknown(id engine.SessionID, op *pb.Operation) error {
	switch op.Call.(type) {
	case *pb.Operation_Close, *pb.Operation_Release:
		_, err := st.service.router.node.Session(st.ctx, id, raftstore.Linearizable)
		if errors.Is(err, engine.ErrNotHeld) {
			return fmt.Errorf("%w: there is no session %s", engine.ErrExpired, id)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: session %s was not opened or attached on this stream, or was closed on it", engine.ErrInvalid, id)
}

func (st *stream) session(id engine.SessionID) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sessions[id]
}

func (st *stream) acquire(s *session, call *pb.AcquireCall, a *pb.Answer) error {
	request, err := wire.ToRequest(call)
	if err != nil {
		return err
	}
	request.Queued = func() { st.notifyQueued(s.id, request.Nonce) }
	grant, err := s.Acquire(st.ctx, request)
	if err != nil {
		return err
	}
	a.Token, a.Mode, a.Slot = uint64(grant.Token), wire.ModeText(grant.Mode), int32(grant.Slot)
	return nil
}

// holds answers with the leases of a session that was attached.
func (st *stream) holds(s *session, a *pb.Answer) error {
	holds, err := s.holds(st.ctx)
	if err != nil {
		return err
	}
	for nonce, token := range holds {
		a.Holds = append(a.Holds, &pb.Hold{Nonce: uint64(nonce), Token: uint64(token)})
	}
	return nil
}
