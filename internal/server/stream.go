package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// maxOperations bounds what one stream may have under way; beyond it the client
// is not read, and so slows down.
const maxOperations = 1 << 16

// stream is one client's session stream. Its operations run concurrently, and
// what they answer while a message is being sent goes into the next one.
type stream struct {
	service *service
	ctx     context.Context

	mu      sync.Mutex
	out     *pb.SessionResponse // what waits to be sent
	entries map[lease.SessionID]*entry

	wake chan struct{} // there is something to send
	room chan struct{} // one token for each operation under way
}

// Session serves one client's stream.
func (s *service) Session(server pb.LeaseService_SessionServer) error {
	ctx, cancel := context.WithCancel(server.Context())
	st := &stream{service: s, ctx: ctx, out: &pb.SessionResponse{}, entries: map[lease.SessionID]*entry{},
		wake: make(chan struct{}, 1), room: make(chan struct{}, maxOperations)}
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
			return nil // the client has gone, or will come again: its sessions live on
		}
		for _, op := range message.Operations {
			select {
			case st.room <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			work.Go(func() {
				st.answer(st.run(op))
				<-st.room
			})
		}
	}
}

// send writes what there is to say, until the stream ends.
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

func (st *stream) say(add func(out *pb.SessionResponse)) {
	st.mu.Lock()
	add(st.out)
	st.mu.Unlock()
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (st *stream) answer(a *pb.Answer) {
	st.say(func(out *pb.SessionResponse) { out.Answers = append(out.Answers, a) })
}

func (st *stream) tellLost(id lease.SessionID, nonce lease.Nonce, err error) {
	n := &pb.Notice{Session: id[:], Nonce: uint64(nonce), Lost: wire.FromError(err)}
	st.say(func(out *pb.SessionResponse) { out.Notices = append(out.Notices, n) })
}

func (st *stream) tellQueued(id lease.SessionID, nonce lease.Nonce) {
	n := &pb.Notice{Session: id[:], Nonce: uint64(nonce)}
	st.say(func(out *pb.SessionResponse) { out.Notices = append(out.Notices, n) })
}

func (st *stream) unlisten() {
	st.mu.Lock()
	entries := st.entries
	st.entries = map[lease.SessionID]*entry{}
	st.mu.Unlock()
	for _, e := range entries {
		e.unlisten(st)
	}
}

// run does one operation.
func (st *stream) run(op *pb.Operation) *pb.Answer {
	a := &pb.Answer{Id: op.Id}
	if err := st.call(op, a); err != nil {
		a.Error = wire.FromError(st.service.explain(err))
	}
	return a
}

func (st *stream) call(op *pb.Operation, a *pb.Answer) error {
	if len(op.Session) != len(lease.SessionID{}) {
		return fmt.Errorf("%w: a session id has %d bytes, not %d", lease.ErrInvalid, len(lease.SessionID{}), len(op.Session))
	}
	id := lease.SessionID(op.Session)
	switch call := op.Call.(type) {
	case *pb.Operation_Open:
		e, err := st.service.sessions.open(st.ctx, id, time.Duration(call.Open.TtlNanos))
		return st.know(e, err)
	case *pb.Operation_Attach:
		e, err := st.service.sessions.attach(st.ctx, id)
		if err := st.know(e, err); err != nil {
			return err
		}
		return st.holds(e, call.Attach.Held, a)
	}
	e := st.entry(id)
	if e == nil {
		return st.unknown(id, op)
	}
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		return st.acquire(e, call.Acquire, a)
	case *pb.Operation_Renew:
		failed, err := e.Renew(st.ctx)
		for _, nonce := range failed {
			a.Failed = append(a.Failed, uint64(nonce))
		}
		return err
	case *pb.Operation_Release:
		return e.Release(st.ctx, lease.Nonce(call.Release.Nonce))
	case *pb.Operation_Close:
		err := e.Close(st.ctx)
		if err == nil {
			st.part(e)
		}
		return err
	}
	return fmt.Errorf("%w: an operation without a call that this service knows", lease.ErrInvalid)
}

// know lets the stream hear of what a session loses. What a client asks for on a
// stream is for the incarnation that it has met there first. A late copy of its
// request to open the session may meet another one, after the end of the first,
// and must not hide that end from the client.
func (st *stream) know(e *entry, err error) error {
	if err != nil {
		return err
	}
	st.mu.Lock()
	if known := st.entries[e.id]; known != nil && known.raft.Incarnation() != e.raft.Incarnation() {
		st.mu.Unlock()
		return fmt.Errorf("%w: session %s, as this stream knows it, has ended; open one with another id", lease.ErrExpired, e.id)
	}
	st.entries[e.id] = e
	st.mu.Unlock()
	e.listen(st)
	if st.ctx.Err() != nil { // the stream may have let go of its sessions by now
		e.unlisten(st)
	}
	return nil
}

// part is the other end of know, for a session that its client has closed. One
// that has ended otherwise stays: the client may not have heard of it.
func (st *stream) part(e *entry) {
	st.mu.Lock()
	if st.entries[e.id] == e {
		delete(st.entries, e.id)
	}
	st.mu.Unlock()
	e.unlisten(st)
}

// unknown answers an operation on a session that the stream does not know. It may
// have been closed here: that it is gone is what another copy of the call, or a
// release, wanted.
func (st *stream) unknown(id lease.SessionID, op *pb.Operation) error {
	switch op.Call.(type) {
	case *pb.Operation_Close, *pb.Operation_Release:
		_, err := st.service.router.node.Session(st.ctx, id, raftstore.Linearizable)
		if errors.Is(err, lease.ErrNotHeld) {
			return fmt.Errorf("%w: there is no session %s", lease.ErrExpired, id)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: session %s was not opened or attached on this stream, or was closed on it", lease.ErrInvalid, id)
}

func (st *stream) entry(id lease.SessionID) *entry {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.entries[id]
}

func (st *stream) acquire(e *entry, call *pb.AcquireCall, a *pb.Answer) error {
	request, err := wire.ToRequest(call)
	if err != nil {
		return err
	}
	request.Queued = func() { st.tellQueued(e.id, request.Nonce) }
	grant, err := e.Acquire(st.ctx, request)
	if err != nil {
		return err
	}
	a.Token, a.Mode, a.Slot = uint64(grant.Token), wire.ModeText(grant.Mode), int32(grant.Slot)
	return nil
}

// holds tells what a session that was attached holds. What it held in the
// efficiency mode through another member is taken over, with the same token, if
// Redis still has it.
func (st *stream) holds(e *entry, held []*pb.AcquireCall, a *pb.Answer) error {
	for _, call := range held {
		request, err := wire.ToRequest(call)
		if err != nil {
			return err
		}
		_, _ = e.findFast(st.ctx, request) // what fails is not among the holds
	}
	holds, err := e.holds(st.ctx)
	if err != nil {
		return err
	}
	for nonce, token := range holds {
		a.Holds = append(a.Holds, &pb.Hold{Nonce: uint64(nonce), Token: uint64(token)})
	}
	return nil
}
